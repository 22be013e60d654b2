//! Checks of claims that settle a doubt, and of releases that make one.

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Held, LONG, Trial, print_of, same, that, value};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, OnCrash, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause,
    RenewAnswer, Resolution, ResolveAnswer, State,
};

/// Keys that came in doubt in different ways.
async fn doubts(t: &Trial) -> Checked<Vec<Held>> {
    doubts_in(t, "").await
}

/// As [`doubts`], on keys with the suffix `more`.
async fn doubts_in(t: &Trial, more: &str) -> Checked<Vec<Held>> {
    let given_up = t.bring(&t.key(format!("given up{more}"))?, Stage::InDoubt).await?;
    let lapsed = t.grant(&t.key(format!("lapsed{more}"))?, &t.ask_in_doubt().with_lease(t.short())).await?;
    t.pass(t.short()).await;
    same("claim", t.claim(&lapsed.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    let doubtful = t.take(&t.key(format!("doubtful{more}"))?).await?;
    same("release", t.release(&doubtful, ReleaseCause::Doubtful).await?, ReleaseAnswer::InDoubt)?;
    Ok(vec![given_up, lapsed, doubtful])
}

pub(crate) async fn a_key_in_doubt_is_granted_to_who_settles_it(t: &Trial) -> Checked {
    for before in doubts(t).await? {
        let request = t.ask_settling();
        let held = t.grant(&before.key, &request).await?;
        same("attempt", held.grant.attempt, 2)?;
        that(held.grant.recovered, "it should be recovered")?;
        that(held.grant.fence > before.grant.fence, "the fence should rise")?;
        let record = t.record(&before.key).await?;
        same("state", record.state, State::InFlight)?;
        same("owner", record.owner, held.owner)?;
        same("policy", record.on_crash, OnCrash::InDoubt)?;
        same("expiry", record.expires_at, None)?;
        same("asked again", t.grant(&before.key, &request).await?.grant.fence, held.grant.fence)?;
        t.busy(&before.key).await?;
        same("who was in doubt", t.complete(&before, b"late").await?, CompleteAnswer::Lost)?;
        same("who was in doubt", t.renew(&before, LONG).await?, RenewAnswer::Lost)?;
        same("complete", t.complete(&held, b"settled").await?, CompleteAnswer::Done)?;
        same("replay", t.replay(&before.key).await?.result, value("settled"))?;
    }
    Ok(())
}

pub(crate) async fn a_lapsed_lease_is_granted_to_who_settles_doubts(t: &Trial) -> Checked {
    let first = t.ask_in_doubt().with_lease(t.short());
    let next = t.ask_settling().with_lease(t.short());
    for (name, first, next) in [("both", first, next.clone()), ("the claimant's", t.ask_short(), next)] {
        let before = t.grant(&t.key(name)?, &first).await?;
        t.pass(t.short()).await;
        let held = t.grant(&before.key, &next).await?;
        same("attempt", held.grant.attempt, 2)?;
        that(held.grant.recovered, format!("{name}: it should be recovered"))?;
        same("policy", t.record(&before.key).await?.on_crash, OnCrash::InDoubt)?;
    }
    Ok(())
}

pub(crate) async fn a_running_lease_is_busy_to_who_settles_doubts(t: &Trial) -> Checked {
    let held = t.grant(&t.key("a")?, &t.ask_in_doubt()).await?;
    let before = t.get(&held.key).await?;
    let answer = t.claim(&held.key, &t.ask_settling()).await?;
    that(matches!(answer, ClaimAnswer::Busy { .. }), format!("it should be busy, and is {answer:?}"))?;
    t.unchanged(&held.key, &before).await
}

pub(crate) async fn settling_changes_no_other_answer(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let plain = t.key(format!("plain {stage:?}"))?;
        let settling = t.key(format!("settling {stage:?}"))?;
        if stage == Stage::InDoubt {
            continue;
        }
        t.bring(&plain, stage).await?;
        t.bring(&settling, stage).await?;
        let wanted = t.claim(&plain, &t.ask()).await?;
        let got = t.claim(&settling, &t.ask().with_recovers(true)).await?;
        let kinds = (std::mem::discriminant(&wanted), std::mem::discriminant(&got));
        that(kinds.0 == kinds.1, format!("wanted {wanted:?}, got {got:?}"))
            .map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn a_doubt_under_other_arguments_is_a_mismatch(t: &Trial) -> Checked {
    let fingerprint = Some(print_of(1));
    let other = t.ask_settling().with_fingerprint(Some(print_of(2)));
    let first = t.ask_in_doubt().with_fingerprint(fingerprint);
    let doubt = t.bring_with(&t.key("a")?, Stage::InDoubt, first.clone()).await?;
    let lapsed = t.bring_with(&t.key("b")?, Stage::Lapsed, first).await?;
    for held in [doubt, lapsed] {
        let before = t.get(&held.key).await?;
        same("claim", t.claim(&held.key, &other).await?, ClaimAnswer::Mismatch)?;
        t.unchanged(&held.key, &before).await?;
        t.grant(&held.key, &t.ask_settling().with_fingerprint(fingerprint)).await?;
    }
    Ok(())
}

pub(crate) async fn past_the_limit_a_doubt_is_granted_to_recover_only(t: &Trial) -> Checked {
    let at_most = |most| t.ask_settling().with_max_attempts(t.ask_at_most(most).max_attempts);
    let lapsed = t.bring_with(&t.key("about to be")?, Stage::Lapsed, t.ask_in_doubt()).await?;
    let all = doubts(t).await?;
    for held in all.iter().chain([&lapsed]) {
        // Any number of times that `recover` cannot find out or does not run.
        for cause in [ReleaseCause::Doubtful, ReleaseCause::Unused, ReleaseCause::Doubtful] {
            let next = t.grant(&held.key, &at_most(1)).await?;
            same("attempt", next.grant.attempt, 2)?;
            same("recovered", next.grant.recovered, true)?;
            same("recover only", next.grant.recover_only, true)?;
            t.release(&next, cause).await?;
            same("claim", t.claim(&held.key, &t.ask_at_most(1)).await?, ClaimAnswer::InDoubt)?;
        }
        let next = t.grant(&held.key, &at_most(2)).await?;
        same("attempt", next.grant.attempt, 2)?;
        same("recover only", next.grant.recover_only, false)?;
    }
    Ok(())
}

pub(crate) async fn an_owner_does_not_settle_its_own_doubt(t: &Trial) -> Checked {
    for held in doubts(t).await? {
        let before = t.get(&held.key).await?;
        let own = t.ask_settling().with_owner(held.owner);
        same("claim", t.claim(&held.key, &own).await?, ClaimAnswer::InDoubt)?;
        t.unchanged(&held.key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn who_does_not_settle_finds_the_doubt(t: &Trial) -> Checked {
    for held in doubts(t).await? {
        let before = t.get(&held.key).await?;
        let rerun = t.ask_settling().with_on_crash(OnCrash::Rerun);
        for request in [t.ask(), t.ask_in_doubt(), t.ask_at_most(1), rerun] {
            same("claim", t.claim(&held.key, &request).await?, ClaimAnswer::InDoubt)?;
        }
        t.unchanged(&held.key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn a_settled_doubt_given_back_unused_is_one_for_ever(t: &Trial) -> Checked {
    for before in doubts(t).await? {
        let request = t.ask_settling().with_lease(t.short()).with_ttl(t.short());
        let held = t.grant(&before.key, &request).await?;
        same("release", t.release(&held, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
        let record = t.record(&before.key).await?;
        same("state", record.state, State::InDoubt)?;
        // A late copy of the claim is not granted, and no other request of its owner counts.
        same("claim", t.claim(&before.key, &request).await?, ClaimAnswer::InDoubt)?;
        same("renew", t.renew(&held, LONG).await?, RenewAnswer::Lost)?;
        same("complete", t.complete(&held, b"late").await?, CompleteAnswer::Lost)?;
        same("release", t.release(&held, ReleaseCause::Unused).await?, ReleaseAnswer::Lost)?;
        t.unchanged(&before.key, &Some(record)).await?;
        t.pass(t.short() * 3).await;
        t.purge(1_000).await?;
        same("claim", t.claim(&before.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
        same("attempt", t.grant(&before.key, &t.ask_settling()).await?.grant.attempt, held.grant.attempt)?;
    }
    for before in doubts_in(t, " again").await? {
        let held = t.grant(&before.key, &t.ask_settling()).await?;
        same("release", t.release(&held, ReleaseCause::Unused).await?, ReleaseAnswer::Released)?;
        same("claim", t.claim(&before.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    }
    Ok(())
}

pub(crate) async fn the_steps_are_there_for_who_settles_a_doubt(t: &Trial) -> Checked {
    let step = RecordedStep::new("charge".into(), Some(print_of(1)), value("c-1"));
    for (name, cause) in [("abandoned", ReleaseCause::Abandoned), ("doubtful", ReleaseCause::Doubtful)] {
        let held = t.grant(&t.key(name)?, &t.ask_in_doubt()).await?;
        same("record_step", t.record_step(&held, 0, &step).await?, RecordStepAnswer::Recorded)?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::InDoubt)?;
        let next = t.grant(&held.key, &t.ask_settling()).await?;
        same("steps", t.record(&held.key).await?.steps, vec![step.clone()])?;
        same("record_step", t.record_step(&next, 1, &step).await?, RecordStepAnswer::Recorded)?;
    }
    let held = t.grant(&t.key("lapsed")?, &t.ask_in_doubt().with_lease(t.short())).await?;
    same("record_step", t.record_step(&held, 0, &step).await?, RecordStepAnswer::Recorded)?;
    t.pass(t.short()).await;
    t.grant(&held.key, &t.ask_settling()).await?;
    same("steps", t.record(&held.key).await?.steps, vec![step])
}

pub(crate) async fn a_doubtful_claim_is_in_doubt_under_any_policy(t: &Trial) -> Checked {
    for on_crash in [OnCrash::Rerun, OnCrash::InDoubt] {
        let request = t.ask().with_on_crash(on_crash).with_fingerprint(Some(print_of(5)));
        let held = t.grant(&t.key(format!("{on_crash:?}"))?, &request).await?;
        let before = t.record(&held.key).await?;
        same("release", t.release(&held, ReleaseCause::Doubtful).await?, ReleaseAnswer::InDoubt)?;
        let after = t.record(&held.key).await?;
        let expected =
            before.with_state(State::InDoubt).with_lease_until(after.lease_until).with_expires_at(None);
        same("record", after, expected)?;
        same("asked again", t.release(&held, ReleaseCause::Doubtful).await?, ReleaseAnswer::InDoubt)?;
        same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
        same("resolve", t.resolve(&held.key, &Resolution::Release).await?, ResolveAnswer::Resolved)?;
        t.take(&held.key).await?;
    }
    Ok(())
}

pub(crate) async fn a_lapsed_claim_can_still_be_doubtful(t: &Trial) -> Checked {
    let held = t.bring(&t.key("a")?, Stage::Lapsed).await?;
    same("release", t.release(&held, ReleaseCause::Doubtful).await?, ReleaseAnswer::InDoubt)
}

pub(crate) async fn a_doubtful_key_never_expires(t: &Trial) -> Checked {
    let held = t.grant(&t.key("a")?, &t.ask().with_ttl(t.short())).await?;
    same("release", t.release(&held, ReleaseCause::Doubtful).await?, ReleaseAnswer::InDoubt)?;
    t.pass(t.short() * 2).await;
    t.purge(1_000).await?;
    same("claim", t.claim(&held.key, &t.ask()).await?, ClaimAnswer::InDoubt)
}

pub(crate) async fn a_doubtful_release_that_comes_too_late_changes_nothing(t: &Trial) -> Checked {
    let late = |stage: &Stage| {
        stage.state() != Some(State::Released)
            && !matches!(stage, Stage::Running | Stage::Lapsed | Stage::InDoubt)
    };
    for stage in Stage::ALL.into_iter().filter(late) {
        let held = t.bring(&t.key(format!("{stage:?}"))?, stage).await?;
        let before = t.get(&held.key).await?;
        same("release", t.release(&held, ReleaseCause::Doubtful).await?, ReleaseAnswer::Lost)
            .map_err(|broken| broken.at(stage))?;
        t.unchanged(&held.key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    let held = t.take(&t.key("a")?).await?;
    for thief in [held.with_another_owner(), held.with_fence(1), held.with_fence(-1)] {
        same("release", t.release(&thief, ReleaseCause::Doubtful).await?, ReleaseAnswer::Lost)?;
    }
    same("state", t.record(&held.key).await?.state, State::InFlight)
}
