//! Checks of claims on free, busy and lapsed keys.

use std::time::Duration;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, LONG, Trial, answered, print_of, same, that};
use idem_core::Store;
use idem_core::protocol::{ClaimAnswer, OnCrash, ReleaseAnswer, ReleaseCause, State};

use super::release::CAUSES;

pub(crate) async fn a_fresh_key_is_granted(t: &Trial) -> Checked {
    let held = t.take(&t.key("a")?).await?;
    same("attempt", held.grant.attempt, 1)?;
    same("recovered", held.grant.recovered, false)?;
    that(held.grant.fence.get() > 0, "a fence is more than zero")?;
    t.left("the lease", held.grant.lease_left, LONG)
}

pub(crate) async fn a_grant_is_recorded_as_it_was_asked(t: &Trial) -> Checked {
    for on_crash in [OnCrash::Rerun, OnCrash::InDoubt] {
        let key = t.key(format!("{on_crash:?}"))?;
        let request = t.ask().with_on_crash(on_crash).with_fingerprint(Some(print_of(7)));
        let held = t.grant(&key, &request).await?;
        let record = t.record(&key).await?;
        same("state", record.state, State::InFlight)?;
        same("owner", record.owner, request.owner)?;
        same("fence", record.fence, held.grant.fence)?;
        same("attempt", record.attempt, 1)?;
        same("recovered", record.recovered, false)?;
        same("policy", record.on_crash, on_crash)?;
        same("fingerprint", record.fingerprint, request.fingerprint)?;
        same("lifetime", record.ttl, request.ttl)?;
        same("result", record.result.clone(), None)?;
        same("completed_at", record.completed_at, None)?;
        same("lease", record.lease_until, record.created_at.after(request.lease))?;
        let end = (on_crash == OnCrash::Rerun).then(|| record.lease_until.after(request.ttl));
        same("expires_at", record.expires_at, end)?;
    }
    Ok(())
}

pub(crate) async fn a_running_lease_is_busy_to_others(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.take(&key).await?;
    t.left("the lease", t.busy(&key).await?, LONG)?;
    t.left("the lease", t.busy(&key).await?, LONG)?;
    same("owner", t.record(&key).await?.owner, held.owner)
}

pub(crate) async fn busy_tells_what_is_left_of_the_lease(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.take(&key).await?;
    t.pass(t.short()).await;
    t.left("the lease", t.busy(&key).await?, LONG - t.short())
}

pub(crate) async fn a_refused_claim_changes_nothing(t: &Trial) -> Checked {
    for stage in
        Stage::live().filter(|stage| !matches!(stage, Stage::Lapsed | Stage::Released | Stage::Abandoned))
    {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        t.claim(&key, &t.ask()).await?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn the_same_owner_is_granted_the_same_again(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask();
    let first = t.grant(&key, &request).await?.grant;
    t.pass(t.short()).await;
    let again = t.grant(&key, &request).await?.grant;
    same("fence", again.fence, first.fence)?;
    same("attempt", again.attempt, first.attempt)?;
    same("recovered", again.recovered, false)?;
    t.left("the lease", again.lease_left, LONG - t.short())
}

pub(crate) async fn asking_again_does_not_extend_the_lease(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask_short();
    let first = t.grant(&key, &request).await?;
    let longer = request.with_lease(LONG).with_ttl(DAY * 9);
    let again = t.grant(&key, &longer).await?;
    same("fence", again.grant.fence, first.grant.fence)?;
    that(again.grant.lease_left <= t.short(), "asking again extended the lease")?;
    t.pass(t.short()).await;
    same("recovered", t.take(&key).await?.grant.recovered, true)
}

pub(crate) async fn asking_again_counts_no_attempt(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask();
    let held = t.grant(&key, &request).await?;
    for _ in 0..5 {
        same("attempt", t.grant(&key, &request).await?.grant.attempt, 1)?;
    }
    t.release(&held, ReleaseCause::Failed).await?;
    same("attempt", t.take(&key).await?.grant.attempt, 2)
}

pub(crate) async fn the_owner_of_a_lapsed_lease_still_has_it_until_it_is_taken_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let request = t.ask_short();
    let first = t.grant(&key, &request).await?.grant;
    t.pass(t.short()).await;
    let again = t.grant(&key, &request).await?.grant;
    same("fence", again.fence, first.fence)?;
    same("attempt", again.attempt, 1)?;
    same("recovered", again.recovered, false)?;
    that(again.lease_left.is_zero(), "nothing is left of a lapsed lease")
}

pub(crate) async fn an_owner_that_was_taken_over_is_not_granted_again(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::TakenOver).await?;
    let before = t.get(&key).await?;
    let request = t.ask().with_owner(first.owner);
    let answer = t.claim(&key, &request).await?;
    that(
        matches!(answer, idem_core::protocol::ClaimAnswer::Busy { .. }),
        format!("the successor has the key, and the answer is {answer:?}"),
    )?;
    t.unchanged(&key, &before).await
}

pub(crate) async fn a_late_copy_of_a_claim_does_not_revive_what_its_owner_released(t: &Trial) -> Checked {
    for cause in CAUSES {
        let key = t.key(format!("{cause:?}"))?;
        let held = t.take(&key).await?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
        let before = t.get(&key).await?;
        let copy = t.ask().with_owner(held.owner);
        for late in [copy.clone(), copy.clone().with_on_crash(OnCrash::InDoubt), copy.with_recovers(true)] {
            same("claim", t.claim(&key, &late).await?, ClaimAnswer::RetryAt { retry_after: Duration::ZERO })?;
        }
        t.unchanged(&key, &before).await?;
        t.take(&key).await?;
    }
    Ok(())
}

pub(crate) async fn a_released_key_is_granted_to_another(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::Released).await?;
    let began = t.record(&key).await?.created_at;
    let next = t.take(&key).await?;
    that(next.grant.fence > first.grant.fence, "a new grant has a new fence")?;
    same("attempt", next.grant.attempt, 2)?;
    same("recovered", next.grant.recovered, false)?;
    let record = t.record(&key).await?;
    same("owner", record.owner, next.owner)?;
    same("created_at", record.created_at, began)
}

pub(crate) async fn a_lapsed_lease_is_taken_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let first = t.bring(&key, Stage::Lapsed).await?;
    let next = t.take(&key).await?;
    same("attempt", next.grant.attempt, 2)?;
    same("recovered", next.grant.recovered, true)?;
    that(next.grant.fence > first.grant.fence, "a new grant has a new fence")?;
    t.left("the lease", next.grant.lease_left, LONG)?;
    same("owner", t.record(&key).await?.owner, next.owner)
}

pub(crate) async fn a_takeover_is_told_as_such_when_asked_again(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let request = t.ask();
    let next = t.grant(&key, &request).await?.grant;
    let again = t.grant(&key, &request).await?.grant;
    same("fence", again.fence, next.fence)?;
    same("attempt", again.attempt, 2)?;
    same("recovered", again.recovered, true)
}

pub(crate) async fn a_takeover_keeps_when_its_generation_began(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let began = t.record(&key).await?.created_at;
    t.take(&key).await?;
    same("created_at", t.record(&key).await?.created_at, began)
}

pub(crate) async fn a_takeover_can_be_taken_over(t: &Trial) -> Checked {
    let key = t.key("a")?;
    for attempt in 1..=4 {
        let held = t.grant(&key, &t.ask_short()).await?;
        same("attempt", held.grant.attempt, attempt)?;
        same("recovered", held.grant.recovered, attempt > 1)?;
        t.pass(t.short()).await;
    }
    Ok(())
}

pub(crate) async fn a_new_attempt_brings_its_own_policy_and_lifetime(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Released).await?;
    let request = t.ask_in_doubt().with_ttl(DAY * 3).with_lease(LONG * 2);
    t.grant(&key, &request).await?;
    let record = t.record(&key).await?;
    same("policy", record.on_crash, OnCrash::InDoubt)?;
    same("lifetime", record.ttl, DAY * 3)?;
    same("expires_at", record.expires_at, None)?;
    let taken = t.key("b")?;
    t.bring(&taken, Stage::Lapsed).await?;
    t.grant(&taken, &t.ask().with_ttl(DAY * 5)).await?;
    same("lifetime after a takeover", t.record(&taken).await?.ttl, DAY * 5)
}

pub(crate) async fn a_release_clears_that_the_attempt_before_was_a_takeover(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.bring(&key, Stage::Lapsed).await?;
    let second = t.take(&key).await?;
    t.release(&second, ReleaseCause::Failed).await?;
    let third = t.take(&key).await?.grant;
    same("attempt", third.attempt, 3)?;
    same("recovered", third.recovered, false)
}

pub(crate) async fn a_lease_ends_at_its_last_microsecond_and_not_before(t: &Trial) -> Checked {
    let key = t.key("a")?;
    t.grant(&key, &t.ask_short()).await?;
    if t.is_exact() {
        let micro = Duration::from_micros(1);
        t.pass(t.short() - micro).await;
        same("what is left", t.busy(&key).await?, micro)?;
        t.pass(micro).await;
    } else {
        t.pass(t.short()).await;
    }
    same("recovered", t.take(&key).await?.grant.recovered, true)
}

pub(crate) async fn a_lease_of_a_hundred_years_runs(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let century = DAY * 36_500;
    let held = t.grant(&key, &t.ask().with_lease(century).with_ttl(century)).await?;
    t.left("the lease", held.grant.lease_left, century)?;
    t.pass(t.short()).await;
    t.left("the lease", t.busy(&key).await?, century - t.short())?;
    let record = t.record(&key).await?;
    same("lease", record.lease_until, record.created_at.after(century))?;
    same("lifetime", record.ttl, century)
}

pub(crate) async fn every_handle_sees_what_another_did(t: &Trial) -> Checked {
    for (number, writer) in t.handles.iter().enumerate() {
        for (other, reader) in t.handles.iter().enumerate() {
            let key = t.key(format!("{number} to {other}"))?;
            let request = t.ask();
            answered(writer.claim(&key, &request).await)?;
            let seen = answered(reader.get(&key).await)?.map(|record| record.owner);
            same("the owner that another handle sees", seen, Some(request.owner))?;
            answered(writer.forget(&key).await)?;
            same("the record that another handle sees", answered(reader.get(&key).await)?, None)?;
        }
    }
    Ok(())
}
