//! The differential test: a long random history of several owners is sent to a store and to the pure protocol, whose
//! answers and records must be the same.
//!
//! Owns the comparison; `moves` draws the operations, and `oracle` computes the expected answers. Unlike the checks, it
//! takes its expectations from the protocol's own functions.

mod asking;
mod moves;
mod oracle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use self::asking::{Answer, Ask};
use self::moves::Gambler;
use self::oracle::{Oracle, Wanted};
use super::Violation;
use super::history::History;
use super::runner;
use super::subject::Subject;
use super::trial::{Broken, Checked, Trial, answered, same, that};
use super::witness::Witness;
use crate::{Fault, OperationKind};
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::Timestamp;

/// Sends `operations` random operations, drawn from `seed`, to the subject from `factory` and to the pure protocol.
/// Some of the store's answers are lost, and some operations fail before they are applied.
///
/// If time is paused, it advances by random steps that often end exactly at the end of a lease or lifetime. On a real
/// clock, leases and lifetimes are either very long or over at once, so that no answer depends on the duration of the
/// test; the store's clock must be that of this host.
///
/// # Errors
///
/// The [`Violation`] with the seed and the end of the history, if an answer or a record differs.
///
/// # Panics
///
/// If `factory` panics.
pub fn run<F, S>(seed: u64, operations: usize, factory: F) -> Result<Answers, Violation>
where
    F: FnOnce() -> S + Send + 'static,
    S: Future<Output = Subject>,
{
    let (history, answers) = (Arc::new(History::default()), Arc::new(Mutex::new(Answers::new())));
    let count = answers.clone();
    let found =
        runner::run(false, factory, &history, move |trial| Box::pin(compare(trial, seed, operations, count)));
    found.map_err(|Broken(what)| Violation {
        name: format!("a random history of {operations} operations from seed {seed}"),
        rule: "every answer is the protocol's",
        what,
        history: history.render(),
    })?;
    let answers = std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(answers)
}

/// How many times each kind of answer occurred, by names such as `claim: Granted`. A random history has not tested what
/// never occurred.
pub type Answers = BTreeMap<&'static str, usize>;

/// The store's time, as far as it can be known from outside.
struct Now {
    /// When the store's paused clock was read, and the time that it showed.
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

async fn compare(t: &Trial, seed: u64, operations: usize, answers: Arc<Mutex<Answers>>) -> Checked {
    let mut oracle = Oracle::new(t.is_exact());
    let now = Now::of(t, &mut oracle).await?;
    // Keys that are easily confused.
    let keys = ["a", "A", "a ", "a\0"].map(|name| t.key(name));
    let keys = keys.into_iter().collect::<Checked<Vec<_>>>()?;
    let mut gambler = Gambler::new(seed, keys, t.is_exact());
    for number in 0..operations {
        if t.is_exact() {
            let edges = oracle.edges(now.read());
            tokio::time::advance(gambler.pause(&edges)).await;
        }
        let (key, ask) = gambler.draw(&oracle);
        let store = &t.handles[gambler.below(t.handles.len())];
        let fault = gambler.fault();
        let answer = step(store, &mut oracle, &mut gambler, &now, (&key, &ask, fault))
            .await
            .map_err(|Broken(what)| Broken(format!("operation {number}, {ask:?}: {what}")))?;
        *answers.lock().unwrap_or_else(PoisonError::into_inner).entry(answer).or_default() += 1;
    }
    Ok(())
}

/// Sends one operation to both, and compares the answers and then the records. Returns the name of the answer.
async fn step(
    store: &Witness,
    oracle: &mut Oracle,
    gambler: &mut Gambler,
    now: &Now,
    (key, ask, fault): (&RecordKey, &Ask, Option<Fault>),
) -> Checked<&'static str> {
    store.faults.next(ask.kind(), fault);
    let before = now.read();
    let given = ask.of(store, key).await;
    let old = oracle.record(key).cloned();
    let mut wrote = false;
    if fault != Some(Fault::FailBefore) {
        let wanted = oracle.step(key, ask, before);
        wrote = wanted.wrote;
        if fault.is_none() {
            agree(oracle, key, &given, &wanted)?;
        }
    }
    if fault.is_some() {
        same("whether the answer came through", given.is_err(), true)?;
    }
    store.faults.next(OperationKind::Get, None);
    let seen = answered(store.get(key).await)?;
    let expected = oracle.live(key, now.read()).cloned();
    match (&seen, &expected) {
        (Some(seen), Some(expected)) => {
            oracle.same_record(seen, expected, old.as_ref().filter(|_| wrote), wrote)?;
            gambler.learn(key, seen);
            oracle.adopt(key, seen.clone());
        }
        _ => same("the record", seen, expected)?,
    }
    Ok(match (&given, fault) {
        (Ok(answer), _) => answer.name(),
        (Err(_), Some(Fault::FailBefore)) => "not applied",
        (Err(_), _) => "applied, and the answer lost",
    })
}

/// Compares an answer with the expected one.
fn agree(
    oracle: &mut Oracle,
    key: &RecordKey,
    given: &Result<Answer, StoreError>,
    wanted: &Wanted,
) -> Checked {
    let given = given.as_ref().map_err(|error| Broken(format!("the store failed: {error}")))?;
    that(oracle.same_answer(key, given, wanted), format!("wanted {:?}, got {given:?}", wanted.answer))
}
