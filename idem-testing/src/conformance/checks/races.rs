//! Checks of many concurrent callers, on several threads and over every handle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Held, Trial, answered, same, that, value};
use crate::conformance::witness::Witness;
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, Fence, Grant, Owner, ReleaseAnswer, ReleaseCause, Resolution,
    ResolveAnswer, StoredResult, Verdict,
};

/// How many callers claim a key at once: `MANY` in a full run, and at least `FEW` in a sample
/// (`Profile::sample`).
const MANY: usize = 300;
const FEW: usize = 40;

/// Fails if a race has taken longer than two minutes, because then its workers make no progress.
fn in_time(begin: Instant) -> Checked {
    that(begin.elapsed() < Duration::from_secs(120), "a race does not come to its end")
}

/// Makes this claim for many new owners at once, and returns the answers.
async fn asked_by_many(t: &Trial, key: &RecordKey, request: &Claim) -> Checked<Vec<ClaimAnswer>> {
    let answers = t
        .race(t.profile.part_of(MANY, FEW), |_, store| {
            let (key, request) = (key.clone(), request.clone().with_owner(Owner::random()));
            async move { store.claim(&key, &request).await }
        })
        .await?;
    answers.into_iter().map(answered).collect()
}

pub(crate) async fn of_hundreds_that_claim_a_key_one_is_granted(t: &Trial) -> Checked {
    let key = t.key("a")?;
    one_of_many(t, &key, &t.ask(), (Fence::default(), 1, false)).await?;
    for (stage, attempt, recovered) in [
        (Stage::Released, 2, false),
        (Stage::Lapsed, 2, true),
        (Stage::InDoubt, 2, true),
        (Stage::Expired, 1, false),
        (Stage::ExpiredInFlight, 1, false),
    ] {
        let key = t.key(format!("{stage:?}"))?;
        let last = t.bring(&key, stage).await?.grant.fence;
        let request = if stage == Stage::InDoubt { t.ask_settling() } else { t.ask() };
        let granted = one_of_many(t, &key, &request, (last, attempt, recovered)).await;
        granted.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

/// Makes many claims at once: one must be granted, and all others must be busy. `last` is the fence of the
/// previous grant.
async fn one_of_many(
    t: &Trial,
    key: &RecordKey,
    request: &Claim,
    (last, attempt, recovered): (Fence, u32, bool),
) -> Checked {
    let mut granted = Vec::new();
    for answer in asked_by_many(t, key, request).await? {
        match answer {
            ClaimAnswer::Granted(grant) => granted.push(grant),
            ClaimAnswer::Busy { .. } => {}
            other => {
                return Err(Broken(format!("a claim in a race should be granted or busy, not {other:?}")));
            }
        }
    }
    let [grant] = granted.as_slice() else {
        return Err(Broken(format!("of all that asked at once, these were granted: {granted:?}")));
    };
    same("fence", t.record(key).await?.fence, grant.fence)?;
    that(grant.fence > last, "a new grant has a new fence")?;
    same("attempt and whether it recovers", (grant.attempt, grant.recovered), (attempt, recovered))
}

pub(crate) async fn of_hundreds_in_a_race_none_is_granted_what_is_refused(t: &Trial) -> Checked {
    for (stage, first, request, expected) in [
        (Stage::Lapsed, t.ask_in_doubt(), t.ask(), ClaimAnswer::InDoubt),
        (Stage::Released, t.ask(), t.ask_at_most(1), ClaimAnswer::Exhausted { attempts: 1 }),
    ] {
        let key = t.key(format!("{stage:?}"))?;
        t.bring_with(&key, stage, first).await?;
        for answer in asked_by_many(t, &key, &request).await? {
            same("claim", &answer, &expected)?;
        }
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
    let mut fences = BTreeSet::new();
    for answer in answers {
        match answered(answer)? {
            ClaimAnswer::Granted(grant) => fences.insert(grant.fence),
            other => return Err(Broken(format!("the owner should have its grant, and not {other:?}"))),
        };
    }
    same("fences", fences.len(), 1)?;
    same("attempt", t.record(&key).await?.attempt, 1)
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

/// The state that the workers of one call of `churn` share.
#[derive(Default)]
struct Churn {
    made: AtomicUsize,
    inside: AtomicUsize,
}

impl Churn {
    /// Claims and releases one key, each time as a new owner, until `enough` grants were made or no attempts
    /// are left.
    async fn work(
        &self,
        key: &RecordKey,
        store: &Witness,
        like: Claim,
        enough: usize,
    ) -> Checked<Vec<Grant>> {
        let (mut grants, begin) = (Vec::new(), Instant::now());
        while self.made.load(Ordering::SeqCst) < enough {
            in_time(begin)?;
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

/// Lets several workers claim and release one key until `enough` grants were made or no attempts are left.
/// Returns the grants, sorted by attempt.
async fn churn(t: &Trial, key: &RecordKey, like: &Claim, enough: usize) -> Checked<Vec<Grant>> {
    let shared = Arc::new(Churn::default());
    let ended = t
        .race(8, |_, store| {
            let (key, shared, like) = (key.clone(), shared.clone(), like.clone());
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
    for pair in churn(t, &t.key("a")?, &t.ask(), 120).await?.windows(2) {
        let rises = pair[0].fence < pair[1].fence && pair[0].attempt + 1 == pair[1].attempt;
        that(rises, format!("fences must rise by attempt, and no attempt be missing: {pair:?}"))?;
    }
    Ok(())
}

pub(crate) async fn racing_claimers_do_not_exceed_a_limit_of_attempts(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let grants = churn(t, &key, &t.ask_at_most(20), 1_000).await?;
    let attempts: Vec<u32> = grants.iter().map(|grant| grant.attempt).collect();
    same("attempts", attempts, (1..=20).collect())?;
    same("claim", t.claim(&key, &t.ask()).await?, ClaimAnswer::Exhausted { attempts: 20 })
}

/// Records a result for each key. Every second result expires at once. Returns the other results, with their
/// keys.
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
            answered(store.complete(&key, &done.with_ttl(Duration::from_millis(1))).await)?;
        }
    }
    Ok(kept)
}

/// Purges until no other task writes.
async fn sweep(store: Witness, writing: &AtomicUsize) -> Checked {
    let begin = Instant::now();
    while writing.load(Ordering::SeqCst) > 0 {
        in_time(begin)?;
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
