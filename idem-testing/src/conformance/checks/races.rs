//! Checks of many concurrent callers, on several threads and over every handle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Held, Trial, answered, same, that, value};
use crate::conformance::witness::Witness;
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, Fence, Grant, Owner, ReleaseAnswer, ReleaseCause, Resolution,
    ResolveAnswer, StoredResult, Verdict,
};

/// The number of callers, and the least of a sample.
const MANY: usize = 300;
const HUNDRED: usize = 100;

/// How long one of many workers tries before it reports that there is no progress.
struct Patience(Instant);

impl Patience {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn check(&self) -> Checked {
        that(self.0.elapsed() < Duration::from_secs(120), "a race does not come to its end")
    }
}

/// The grants among the answers; all others must be busy.
fn grants(answers: Vec<Result<ClaimAnswer, StoreError>>) -> Checked<Vec<Grant>> {
    let mut grants = Vec::new();
    for answer in answers {
        match answered(answer)? {
            ClaimAnswer::Granted(grant) => grants.push(grant),
            ClaimAnswer::Busy { .. } => {}
            other => {
                return Err(Broken(format!("a claim in a race should be granted or busy, not {other:?}")));
            }
        }
    }
    Ok(grants)
}

/// Lets many new owners claim a key at once: one must be granted.
async fn one_of_many(t: &Trial, key: &RecordKey) -> Checked<Grant> {
    let many = t.profile.part_of(MANY, HUNDRED);
    let answers = t
        .race(many, |_, store| {
            let (key, request) = (key.clone(), t.ask());
            async move { store.claim(&key, &request).await }
        })
        .await?;
    let granted = grants(answers)?;
    match granted.as_slice() {
        [grant] => {
            same("fence", t.record(key).await?.fence, grant.fence)?;
            Ok(*grant)
        }
        other => Err(Broken(format!("{many} asked at once and {} were granted: {other:?}", other.len()))),
    }
}

pub(crate) async fn of_hundreds_that_claim_a_free_key_one_is_granted(t: &Trial) -> Checked {
    same("attempt", one_of_many(t, &t.key("a")?).await?.attempt, 1)?;
    for (stage, attempt) in
        [(Stage::Released, 2), (Stage::Lapsed, 2), (Stage::Expired, 1), (Stage::ExpiredInFlight, 1)]
    {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let grant = one_of_many(t, &key).await.map_err(|broken| broken.at(stage))?;
        same("attempt", grant.attempt, attempt).map_err(|broken| broken.at(stage))?;
        same("recovered", grant.recovered, stage == Stage::Lapsed).map_err(|broken| broken.at(stage))?;
        that(grant.fence > held.grant.fence, "a new grant has a new fence")?;
    }
    Ok(())
}

pub(crate) async fn of_hundreds_in_a_race_none_is_granted_a_key_in_doubt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring_with(&key, Stage::Lapsed, t.ask_in_doubt()).await?;
    let answers = t
        .race(t.profile.part_of(MANY, HUNDRED), |_, store| {
            let (key, request) = (key.clone(), t.ask());
            async move { store.claim(&key, &request).await }
        })
        .await?;
    for answer in answers {
        same("claim", answered(answer)?, ClaimAnswer::InDoubt)?;
    }
    Ok(())
}

pub(crate) async fn an_owner_that_asks_many_times_at_once_has_one_grant(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask();
    let answers = t
        .race(64, |_, store| {
            let (key, request) = (key.clone(), request.clone());
            async move { store.claim(&key, &request).await }
        })
        .await?;
    let granted = grants(answers)?;
    same("grants", granted.len(), 64)?;
    let fences: BTreeSet<Fence> = granted.iter().map(|grant| grant.fence).collect();
    same("fences", fences.len(), 1)?;
    same("attempt", t.record(&key).await?.attempt, 1)
}

pub(crate) async fn races_for_different_keys_do_not_touch_each_other(t: &Trial) -> Checked {
    let keys: Checked<Vec<_>> = (0..32).map(|number| t.key(format!("{number}"))).collect();
    let keys = keys?;
    let answers = t
        .race(256, |number, store| {
            let (key, request) = (keys[number % 32].clone(), t.ask());
            async move { (key.clone(), store.claim(&key, &request).await) }
        })
        .await?;
    let mut granted = BTreeMap::new();
    for (key, answer) in answers {
        let count = granted.entry(key.key().clone()).or_insert(0);
        *count += grants(vec![answer])?.len();
    }
    for (key, count) in granted {
        that(count == 1, format!("key {} was granted {count} times", key.as_str()))?;
    }
    Ok(())
}

pub(crate) async fn of_many_results_of_one_attempt_one_is_recorded(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let answers = t
        .race(64, |number, store| {
            let verdict = if number % 2 == 0 { Verdict::Completed } else { Verdict::Failed };
            let request = held.completion(format!("{number}")).with_verdict(verdict);
            let key = key.clone();
            async move {
                let answer = store.complete(&key, &request).await;
                (answer, store.get(&key).await)
            }
        })
        .await?;
    let recorded = t.get(&key).await?;
    for (answer, seen) in answers {
        same("complete", answered(answer)?, CompleteAnswer::Done)?;
        same("the record seen right after", answered(seen)?, recorded.clone())?;
    }
    Ok(())
}

pub(crate) async fn of_many_operators_one_resolves(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::InDoubt).await?;
    let answers = t
        .race(32, |number, store| {
            let (key, result) = (key.clone(), value(format!("{number}")));
            let word = Resolution::Record(Verdict::Completed, result.clone());
            async move { (result, store.resolve(&key, &word).await) }
        })
        .await?;
    let mut resolved = Vec::new();
    for (result, answer) in answers {
        if answered(answer)? == ResolveAnswer::Resolved {
            resolved.push(result);
        }
    }
    same("resolved", resolved.len(), 1)?;
    same("result", Some(t.replay(&key).await?.result), resolved.pop())
}

/// The state that the workers of one churn share.
#[derive(Default)]
struct Churn {
    made: AtomicUsize,
    inside: AtomicUsize,
}

impl Churn {
    /// Claims and releases one key, each time as a new owner, until `enough` grants were made.
    async fn work(
        &self,
        key: &RecordKey,
        store: &Witness,
        like: Claim,
        enough: usize,
    ) -> Checked<Vec<Grant>> {
        let (mut grants, patience) = (Vec::new(), Patience::start());
        while self.made.load(Ordering::SeqCst) < enough {
            patience.check()?;
            let request = like.clone().with_owner(Owner::random());
            let grant = match answered(store.claim(key, &request).await)? {
                ClaimAnswer::Granted(grant) => grant,
                ClaimAnswer::Exhausted { .. } => break,
                _ => {
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            same("how many others hold the key", self.inside.fetch_add(1, Ordering::SeqCst), 0)?;
            self.made.fetch_add(1, Ordering::SeqCst);
            grants.push(grant);
            tokio::task::yield_now().await;
            self.inside.fetch_sub(1, Ordering::SeqCst);
            let held = Held { key: key.clone(), owner: request.owner, grant };
            let released = store.release(key, &held.release(ReleaseCause::Failed)).await;
            same("release", answered(released)?, ReleaseAnswer::Released)?;
        }
        Ok(grants)
    }
}

/// Lets several workers claim and release one key until `enough` grants were made, and returns the grants by attempt.
async fn churn(t: &Trial, key: &RecordKey, most: Option<u32>, enough: usize) -> Checked<Vec<Grant>> {
    let shared = Arc::new(Churn::default());
    let ended = t
        .race(8, |_, store| {
            let (key, shared) = (key.clone(), shared.clone());
            let like = most.map_or_else(|| t.ask(), |most| t.ask_at_most(most));
            async move {
                let grants = shared.work(&key, &store, like, enough).await;
                if grants.is_err() {
                    // Lets the other workers end.
                    shared.made.store(enough, Ordering::SeqCst);
                }
                grants
            }
        })
        .await?;
    let mut grants = Vec::new();
    for made in ended {
        grants.extend(made?);
    }
    grants.sort_by_key(|grant| grant.attempt);
    Ok(grants)
}

pub(crate) async fn a_key_is_never_held_twice_and_its_fences_rise(t: &Trial) -> Checked {
    let grants = churn(t, &t.key("a")?, None, 120).await?;
    for (number, pair) in grants.windows(2).enumerate() {
        that(pair[0].fence < pair[1].fence, format!("fences must rise by attempt: {pair:?}"))?;
        that(pair[0].attempt + 1 == pair[1].attempt, format!("an attempt is missing at {number}: {pair:?}"))?;
    }
    Ok(())
}

pub(crate) async fn racing_claimers_do_not_exceed_a_limit_of_attempts(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let grants = churn(t, &key, Some(20), 1_000).await?;
    let attempts: Vec<u32> = grants.iter().map(|grant| grant.attempt).collect();
    same("attempts", attempts, (1..=20).collect())?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::Exhausted { attempts: 20 })
}

/// Records results, of which every second one expires at once, and returns the others.
async fn fill(store: Witness, like: Claim, keys: Vec<RecordKey>) -> Checked<Vec<(RecordKey, StoredResult)>> {
    let mut kept = Vec::new();
    for (place, key) in keys.into_iter().enumerate() {
        let request = like.clone().with_owner(Owner::random());
        let ClaimAnswer::Granted(grant) = answered(store.claim(&key, &request).await)? else {
            return Err(Broken("a fresh key was not granted".into()));
        };
        let held = Held { key: key.clone(), owner: request.owner, grant };
        let done = held.completion(format!("{place}"));
        if place % 2 == 0 {
            answered(store.complete(&key, &done).await)?;
            kept.push((key, done.result));
        } else {
            let ttl = Duration::from_millis(1);
            answered(store.complete(&key, &done.with_ttl(ttl)).await)?;
        }
    }
    Ok(kept)
}

/// Purges while others write.
async fn sweep(store: Witness, writing: &AtomicUsize) -> Checked {
    let patience = Patience::start();
    while writing.load(Ordering::SeqCst) > 0 {
        patience.check()?;
        answered(store.purge(16).await)?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub(crate) async fn a_purge_under_load_touches_no_live_record(t: &Trial) -> Checked {
    const WRITERS: usize = 6;
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let keys = |number| (0..60).map(|place| t.key(format!("{number} {place}"))).collect::<Checked<Vec<_>>>();
    let ended = t
        .race(WRITERS + 2, |number, store| {
            let (writing, keys, like) = (writing.clone(), keys(number), t.ask());
            async move {
                if number < WRITERS {
                    let kept = fill(store, like, keys?).await;
                    writing.fetch_sub(1, Ordering::SeqCst);
                    kept
                } else {
                    sweep(store, &writing).await.map(|()| Vec::new())
                }
            }
        })
        .await?;
    for kept in ended {
        for (key, result) in kept? {
            same("result", t.replay(&key).await?.result, result)?;
        }
    }
    Ok(())
}
