//! The differential test sends requests to a store and to the pure protocol. Both must give the same answers
//! and the same records.
//!
//! Owns the comparison of a long random history. `moves` draws its operations; `traces` has every short
//! history; `oracle` computes the expected answers. Unlike the other checks, this test takes its expectations
//! from the protocol's own functions.

mod alphabet;
mod asking;
mod moves;
mod oracle;
pub(super) mod traces;

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use self::asking::{Answer, Ask};
use self::moves::Gambler;
use self::oracle::{Oracle, Wanted};
use super::trial::{Broken, Checked, Trial, answered, same, that};
use super::witness::Witness;
use crate::Fault;
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::{Record, Timestamp};

/// The store's time, as far as it can be known from outside.
struct Now {
    /// If the time is paused: a moment of tokio's clock, and the store's time at this moment.
    paused: Option<(Instant, Timestamp)>,
}

impl Now {
    async fn of(t: &Trial, oracle: &mut Oracle) -> Checked<Self> {
        if !t.is_exact() {
            return Ok(Self { paused: None });
        }
        let probe = t.key("the time")?;
        t.take(&probe).await?;
        let record = t.record(&probe).await?;
        let paused = Some((Instant::now(), record.created_at));
        oracle.adopt(&probe, record);
        Ok(Self { paused })
    }

    fn read(&self) -> Timestamp {
        match self.paused {
            Some((at, told)) => told.after(at.elapsed()),
            None => {
                Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
            }
        }
    }
}

/// Sends `operations` random operations, drawn from `seed`, to the store and to the pure protocol. Some of
/// the store's answers are lost, and some operations fail before they are applied.
///
/// If time is paused, it advances by random steps that often end exactly at the end of a lease or lifetime.
/// On a real clock, leases and lifetimes are either very long or over at once, so that no answer depends on
/// the duration of the test. A real clock of the store must differ from this host's clock by less than a
/// minute.
pub(super) async fn history(t: &Trial, seed: u64, operations: usize) -> Checked {
    let mut oracle = Oracle::new(t.is_exact());
    let now = Now::of(t, &mut oracle).await?;
    // Keys that are easily confused.
    let keys = [("", "a"), ("2", "a"), ("", "a "), ("", "a\0")].map(|(scope, name)| t.key_in(scope, name));
    let keys = keys.into_iter().collect::<Checked<Vec<_>>>()?;
    let mut gambler = Gambler::new(seed, keys);
    for number in 0..operations {
        if t.is_exact() {
            let edges = oracle.edges(now.read());
            tokio::time::advance(gambler.pause(&edges)).await;
        }
        let (key, ask) = gambler.draw(&oracle);
        let store = &t.handles[gambler.below(t.handles.len())];
        let fault = gambler.fault();
        let agreed = step(store, &mut oracle, &mut gambler, &now, (&key, &ask, fault)).await;
        agreed.map_err(|Broken(what)| {
            Broken(format!("IDEM_SEED={seed}: operation {number}, {ask:?}: {what}"))
        })?;
    }
    Ok(())
}

/// Sends one operation to the store and to the oracle, and compares the answers and then the records.
async fn step(
    store: &Witness,
    oracle: &mut Oracle,
    gambler: &mut Gambler,
    now: &Now,
    (key, ask, fault): (&RecordKey, &Ask, Option<Fault>),
) -> Checked {
    store.faults.next(ask.kind(), fault);
    let before = now.read();
    let given = ask.of(store, key).await;
    let old = oracle.record(key).cloned();
    let mut wrote = false;
    if fault != Some(Fault::FailBefore) {
        let wanted = oracle.step(key, ask, before);
        wrote = wanted.wrote;
        if fault.is_none() {
            agree(oracle, key, given.as_ref().map_err(failed)?, &wanted)?;
        }
    }
    if fault.is_some() {
        same("whether the answer came through", given.is_err(), true)?;
    }
    if let Some(seen) = compared(store, oracle, key, now, (old.as_ref(), wrote)).await? {
        gambler.learn(key, &seen);
        oracle.adopt(key, seen);
    }
    Ok(())
}

/// Reads the record, and compares it with the expected record. `old` is the record before the operation.
async fn compared(
    store: &Witness,
    oracle: &mut Oracle,
    key: &RecordKey,
    now: &Now,
    (old, wrote): (Option<&Record>, bool),
) -> Checked<Option<Record>> {
    let seen = answered(store.get(key).await)?;
    match (&seen, oracle.live(key, now.read()).cloned()) {
        (Some(seen), Some(expected)) => {
            oracle.same_record(seen, &expected, old.filter(|_| wrote), wrote)?;
        }
        (seen, expected) => same("the record", seen, &expected)?,
    }
    Ok(seen)
}

fn agree(oracle: &mut Oracle, key: &RecordKey, given: &Answer, wanted: &Wanted) -> Checked {
    that(oracle.same_answer(key, given, wanted), format!("wanted {:?}, got {given:?}", wanted.answer))
}

fn failed(error: &StoreError) -> Broken {
    Broken(format!("the store failed: {error}"))
}
