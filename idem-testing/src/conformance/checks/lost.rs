//! Checks of lost answers, late requests and dropped callers: a repeated request gets the true answer.

use futures_util::FutureExt;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, LONG, Trial, same, that, value};
use crate::{Fault, OperationKind};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    CompleteAnswer, OnCrash, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution, ResolveAnswer, State,
    Verdict,
};

/// Lets the next operation of this kind be applied and loses its answer.
fn lose(t: &Trial, kind: OperationKind) {
    t.store.faults.next(kind, Fault::FailAfter);
}

/// Checks that an operation's answer was lost.
fn lost<A>(answer: Result<A, idem_core::StoreError>) -> Checked {
    let kind = answer.map(|_| ()).map_err(|error| error.kind());
    same("the answer", kind, Err(StoreErrorKind::OutcomeUnknown))
}

pub(crate) async fn a_lost_grant_is_found_by_its_owner(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask();
    lose(t, OperationKind::Claim);
    lost(t.store.claim(&key, &request).await)?;
    t.busy(&key).await?;
    let grant = t.grant(&key, &request).await?.grant;
    same("attempt", grant.attempt, 1)?;
    same("fence", t.record(&key).await?.fence, grant.fence)
}

pub(crate) async fn a_lost_takeover_is_found_by_its_owner(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let request = t.ask();
    lose(t, OperationKind::Claim);
    lost(t.store.claim(&key, &request).await)?;
    t.busy(&key).await?;
    let grant = t.grant(&key, &request).await?.grant;
    same("attempt", grant.attempt, 2)?;
    same("recovered", grant.recovered, true)
}

pub(crate) async fn a_lost_refusal_is_told_again(t: &Trial) -> Checked {
    for stage in
        Stage::live().filter(|stage| !matches!(stage, Stage::Lapsed | Stage::Released | Stage::Abandoned))
    {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        let request = t.ask();
        lose(t, OperationKind::Claim);
        lost(t.store.claim(&key, &request).await)?;
        let answer = t.claim(&key, &request).await?;
        that(!matches!(answer, idem_core::protocol::ClaimAnswer::Granted(_)), format!("it is {answer:?}"))
            .map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_lost_renewal_was_one(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_short()).await?;
    lose(t, OperationKind::Renew);
    lost(t.store.renew(&key, &held.renewal(LONG)).await)?;
    t.pass(t.short()).await;
    t.busy(&key).await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)
}

pub(crate) async fn a_lost_completion_is_done(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    lose(t, OperationKind::Complete);
    lost(t.store.complete(&key, &held.completion("first")).await)?;
    let before = t.get(&key).await?;
    same("complete", t.complete(&held, b"second").await?, CompleteAnswer::Done)?;
    t.unchanged(&key, &before).await?;
    same("result", t.replay(&key).await?.result, value("first"))
}

pub(crate) async fn a_completion_that_was_too_late_is_lost_however_often_it_is_asked(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let slow = t.bring(&key, Stage::TakenOver).await?;
    lose(t, OperationKind::Complete);
    lost(t.store.complete(&key, &slow.completion("slow")).await)?;
    same("complete", t.complete(&slow, b"slow").await?, CompleteAnswer::Lost)
}

pub(crate) async fn a_lost_release_is_found_released(t: &Trial) -> Checked {
    for cause in [ReleaseCause::Failed, ReleaseCause::Abandoned] {
        let key = t.key(format!("{cause:?}"))?;
        let held = t.take(&key).await?;
        lose(t, OperationKind::Release);
        lost(t.store.release(&key, &held.release(cause)).await)?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
        same("attempt", t.take(&key).await?.grant.attempt, 2)?;
    }
    Ok(())
}

pub(crate) async fn a_lost_release_into_doubt_is_found_in_doubt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask_in_doubt()).await?;
    lose(t, OperationKind::Release);
    lost(t.store.release(&key, &held.release(ReleaseCause::Abandoned)).await)?;
    same("release", t.release(&held, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)
}

pub(crate) async fn a_release_asked_again_does_not_free_who_claimed_meanwhile(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    lose(t, OperationKind::Release);
    lost(t.store.release(&key, &held.release(ReleaseCause::Failed)).await)?;
    let next = t.take(&key).await?;
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Lost)?;
    same("owner", t.record(&key).await?.owner, next.owner)?;
    t.busy(&key).await.map(|_| ())
}

pub(crate) async fn a_lost_word_of_an_operator_is_found_carried_out(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::InDoubt).await?;
    let word = Resolution::Record(Verdict::Completed, value("word"));
    lose(t, OperationKind::Resolve);
    lost(t.store.resolve(&key, &word).await)?;
    same("resolve", t.resolve(&key, &word).await?, ResolveAnswer::NotInDoubt(State::Completed))?;
    same("result", t.replay(&key).await?.result, value("word"))
}

pub(crate) async fn a_lost_removal_is_found_removed(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Completed).await?;
    lose(t, OperationKind::Forget);
    lost(t.store.forget(&key).await)?;
    same("forget", t.forget(&key).await?, false)?;
    same("record", t.get(&key).await?, None)
}

pub(crate) async fn a_lost_purge_did_its_work(t: &Trial) -> Checked {
    let (kept, gone) = (t.key("kept")?, t.key("gone")?);
    t.bring(&kept, Stage::Completed).await?;
    t.bring(&gone, Stage::Expired).await?;
    lose(t, OperationKind::Purge);
    lost(t.store.purge(1_000).await)?;
    let left = t.purge(1_000).await?;
    that(t.profile.shared || left == 0, format!("the lost purge left {left} behind"))?;
    t.replay(&kept).await.map(|_| ())
}

pub(crate) async fn a_lost_look_changes_nothing(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    let before = t.get(&key).await?;
    lose(t, OperationKind::Get);
    lost(t.store.get(&key).await)?;
    t.unchanged(&key, &before).await?;
    same("renew", t.renew(&held, LONG).await?, RenewAnswer::Held)
}

pub(crate) async fn what_failed_before_it_was_applied_did_not_happen(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.store.faults.down(true);
    let first = t.ask();
    for answer in [t.store.claim(&key, &first).await.map(|_| ()), t.store.forget(&key).await.map(|_| ())] {
        let kind = answer.map_err(|error| error.kind());
        same("the answer of a store that is down", kind, Err(StoreErrorKind::Unavailable))?;
    }
    t.store.faults.down(false);
    let held = t.take(&key).await?;
    same("attempt", held.grant.attempt, 1)?;
    t.store.faults.next(OperationKind::Complete, Fault::FailBefore);
    let failed = t.store.complete(&key, &held.completion("first")).await;
    that(failed.is_err(), "the fault was not injected")?;
    same("complete", t.complete(&held, b"second").await?, CompleteAnswer::Done)?;
    same("result", t.replay(&key).await?.result, value("second"))
}

/// Waits until a late operation of this kind has arrived.
async fn arrives(t: &Trial, kind: OperationKind, number: u64) -> Checked {
    for _ in 0..100 {
        t.pass(t.short()).await;
        tokio::task::yield_now().await;
        if t.store.faults.applied(kind) >= number {
            return Ok(());
        }
    }
    that(false, format!("a late {kind:?} did not arrive"))
}

pub(crate) async fn a_completion_that_arrives_after_a_takeover_is_not_recorded(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let slow = t.bring(&key, Stage::Lapsed).await?;
    t.store.faults.next(OperationKind::Complete, Fault::FailThenApply(t.short()));
    lost(t.store.complete(&key, &slow.completion("slow")).await)?;
    let next = t.take(&key).await?;
    arrives(t, OperationKind::Complete, 1).await?;
    t.busy(&key).await?;
    same("complete by the next", t.complete(&next, b"next").await?, CompleteAnswer::Done)?;
    same("result", t.replay(&key).await?.result, value("next"))
}

pub(crate) async fn a_release_that_arrives_after_a_takeover_frees_nobody(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let slow = t.bring(&key, Stage::Lapsed).await?;
    t.store.faults.next(OperationKind::Release, Fault::FailThenApply(t.short()));
    lost(t.store.release(&key, &slow.release(ReleaseCause::Abandoned)).await)?;
    let next = t.take(&key).await?;
    arrives(t, OperationKind::Release, 1).await?;
    same("owner", t.record(&key).await?.owner, next.owner)?;
    t.busy(&key).await.map(|_| ())
}

pub(crate) async fn a_renewal_that_arrives_after_a_release_holds_nothing(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.store.faults.next(OperationKind::Renew, Fault::FailThenApply(t.short()));
    lost(t.store.renew(&key, &held.renewal(LONG)).await)?;
    t.release(&held, ReleaseCause::Failed).await?;
    arrives(t, OperationKind::Renew, 1).await?;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn a_claim_that_arrives_after_the_result_changes_nothing(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let late = t.ask().with_on_crash(OnCrash::InDoubt);
    t.store.faults.next(OperationKind::Claim, Fault::FailThenApply(t.short()));
    lost(t.store.claim(&key, &late).await)?;
    let held = t.take(&key).await?;
    t.complete(&held, b"r").await?;
    let before = t.get(&key).await?;
    arrives(t, OperationKind::Claim, 2).await?;
    t.unchanged(&key, &before).await
}

pub(crate) async fn a_claim_that_arrives_after_its_owner_released_changes_nothing(t: &Trial) -> Checked {
    for (name, cause) in [("failed", ReleaseCause::Failed), ("unused", ReleaseCause::Unused)] {
        let key = t.key(name)?;
        let (request, number) = (t.ask(), t.store.faults.applied(OperationKind::Claim));
        t.store.faults.next(OperationKind::Claim, Fault::FailThenApply(t.short()));
        lost(t.store.claim(&key, &request).await)?;
        let held = t.grant(&key, &request).await?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
        let before = t.get(&key).await?;
        arrives(t, OperationKind::Claim, number + 2).await?;
        t.unchanged(&key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn a_claim_whose_asker_went_away_is_granted_once_or_never(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let request = t.ask();
        // Polled once and dropped.
        let _ = t.store.claim(&key, &request).now_or_never();
        same("attempt", t.grant(&key, &request).await?.grant.attempt, 1)?;
    }
    Ok(())
}

pub(crate) async fn a_completion_whose_asker_went_away_is_whole_or_absent(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let held = t.take(&key).await?;
        let _ = t.store.complete(&key, &held.completion("first")).now_or_never();
        same("complete", t.complete(&held, b"second").await?, CompleteAnswer::Done)?;
        let result = t.replay(&key).await?.result;
        let whole = result == value("first") || result == value("second");
        that(whole, format!("the result is neither: {result:?}"))?;
    }
    Ok(())
}

pub(crate) async fn a_release_whose_asker_went_away_is_whole_or_absent(t: &Trial) -> Checked {
    for number in 0..20 {
        let key = t.key(format!("{number}"))?;
        let held = t.take(&key).await?;
        let _ = t.store.release(&key, &held.release(ReleaseCause::Failed)).now_or_never();
        same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
        same("attempt", t.take(&key).await?.grant.attempt, 2)?;
    }
    Ok(())
}
