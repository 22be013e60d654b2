//! Checks of many concurrent callers, on several threads and over every handle.

use std::collections::BTreeSet;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Trial, answered, same, that, value};
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, Fence, Owner, Resolution, ResolveAnswer, Verdict,
};

/// The number of callers, and the least of a sample.
const MANY: usize = 300;
const HUNDRED: usize = 100;

/// The answers to this claim, which many new owners make at once.
async fn asked_by_many(t: &Trial, key: &RecordKey, request: &Claim) -> Checked<Vec<ClaimAnswer>> {
    let answers = t
        .race(t.profile.part_of(MANY, HUNDRED), |_, store| {
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

/// Of many claims at once one must be granted, and all others must be busy. `last` is the fence before it.
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
