//! Checks of how long steps are kept: through takeovers, releases and doubts, until there is a result or a new generation.

use super::{held_with, record, step, steps};
use crate::conformance::trial::{Checked, DAY, LONG, Trial, print_of, same, that, value};
use idem_core::protocol::RecordStepAnswer::{Lost, Recorded};
use idem_core::protocol::{
    ClaimAnswer, CompleteAnswer, ReleaseAnswer, ReleaseCause, Resolution, ResolveAnswer, Verdict,
};

pub(crate) async fn a_takeover_has_the_steps_of_who_was_taken_over(t: &Trial) -> Checked {
    let fingerprint = Some(print_of(3));
    for (name, first) in
        [("plain", t.ask_short()), ("fingerprint", t.ask_short().with_fingerprint(fingerprint))]
    {
        let held = held_with(t, name, &first, &steps(3)).await?;
        t.pass(t.short()).await;
        let next = t.grant(&held.key, &t.ask_short()).await?;
        that(next.grant.recovered, "it should be recovered")?;
        same("steps", t.record(&held.key).await?.steps, steps(3))?;
        same("record_step", t.record_step(&next, 3, &step("step 3")).await?, Recorded)?;
        t.pass(t.short()).await;
        t.take(&held.key).await?;
        let record = t.record(&held.key).await?;
        same("steps", record.steps, steps(4))?;
        same("fingerprint", record.fingerprint, first.fingerprint)?;
    }
    Ok(())
}

pub(crate) async fn steps_outlive_a_release_and_a_new_fingerprint(t: &Trial) -> Checked {
    for cause in [ReleaseCause::Failed, ReleaseCause::Abandoned, ReleaseCause::Unused] {
        let held = held_with(t, &format!("{cause:?}"), &t.ask(), &steps(2)).await?;
        same("release", t.release(&held, cause).await?, ReleaseAnswer::Released)?;
        same("steps", t.record(&held.key).await?.steps, steps(2))?;
        let request = t.ask().with_fingerprint(Some(print_of(6)));
        let next = t.grant(&held.key, &request).await?;
        let record = t.record(&held.key).await?;
        same("steps", record.steps, steps(2))?;
        same("fingerprint", record.fingerprint, request.fingerprint)?;
        same("record_step", t.record_step(&next, 2, &step("step 2")).await?, Recorded)?;
        same("steps", t.record(&held.key).await?.steps, steps(3))?;
    }
    Ok(())
}

pub(crate) async fn steps_outlive_a_renewal(t: &Trial) -> Checked {
    let held = held_with(t, "a", &t.ask(), &steps(2)).await?;
    t.renew(&held, LONG).await?;
    same("steps", t.record(&held.key).await?.steps, steps(2))?;
    same("record_step", t.record_step(&held, 2, &step("step 2")).await?, Recorded)
}

pub(crate) async fn steps_outlive_a_doubt_and_an_operators_release(t: &Trial) -> Checked {
    let lapsed = t.ask_in_doubt().with_lease(t.short());
    let lapsed = held_with(t, "lapsed", &lapsed, &steps(2)).await?;
    t.pass(t.short()).await;
    same("claim", t.claim(&lapsed.key, &t.ask()).await?, ClaimAnswer::InDoubt)?;
    let given_up = held_with(t, "given up", &t.ask_in_doubt(), &steps(2)).await?;
    same("release", t.release(&given_up, ReleaseCause::Abandoned).await?, ReleaseAnswer::InDoubt)?;
    for held in [lapsed, given_up] {
        same("steps", t.record(&held.key).await?.steps, steps(2))?;
        same("resolve", t.resolve(&held.key, &Resolution::Release).await?, ResolveAnswer::Resolved)?;
        same("steps", t.record(&held.key).await?.steps, steps(2))?;
        let next = t.take(&held.key).await?;
        same("steps", t.record(&held.key).await?.steps, steps(2))?;
        same("record_step", t.record_step(&next, 2, &step("step 2")).await?, Recorded)?;
    }
    Ok(())
}

pub(crate) async fn a_refused_claim_leaves_the_steps(t: &Trial) -> Checked {
    let first = t.ask().with_fingerprint(Some(print_of(1)));
    let held = held_with(t, "a", &first, &steps(2)).await?;
    let before = t.get(&held.key).await?;
    t.busy(&held.key).await?;
    t.claim(&held.key, &t.ask().with_fingerprint(Some(print_of(2)))).await?;
    t.grant(&held.key, &first).await?;
    t.unchanged(&held.key, &before).await
}

pub(crate) async fn a_result_takes_the_place_of_the_steps(t: &Trial) -> Checked {
    let fingerprint = Some(print_of(8));
    for request in [t.ask(), t.ask().with_fingerprint(fingerprint), t.ask_in_doubt()] {
        let held = held_with(t, &format!("{request:?}"), &request, &steps(3)).await?;
        same("complete", t.complete(&held, b"receipt").await?, CompleteAnswer::Done)?;
        let record = t.record(&held.key).await?;
        same("steps", record.steps, Vec::new())?;
        same("result", record.result, Some(value("receipt")))?;
        same("fingerprint", record.fingerprint, request.fingerprint)?;
        same("replay", t.replay(&held.key).await?.result, value("receipt"))?;
    }
    Ok(())
}

pub(crate) async fn steps_outlive_attempts_that_ran_out(t: &Trial) -> Checked {
    for fingerprint in [None, Some(print_of(4))] {
        let ask = || t.ask().with_fingerprint(fingerprint);
        let failed = held_with(t, &format!("failed {fingerprint:?}"), &ask(), &steps(2)).await?;
        t.release(&failed, ReleaseCause::Failed).await?;
        let short = ask().with_lease(t.short());
        let lapsed = held_with(t, &format!("lapsed {fingerprint:?}"), &short, &steps(2)).await?;
        t.pass(t.short()).await;
        for held in [failed, lapsed] {
            let answer = t.claim(&held.key, &t.ask_at_most(1)).await?;
            same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })?;
            let record = t.record(&held.key).await?;
            same("steps", record.steps, steps(2))?;
            same("fingerprint", record.fingerprint, fingerprint)?;
            same("record_step", t.record_step(&held, 2, &step("late")).await?, Lost)?;
            // The next claim gets the same answer, and the next generation begins without the steps.
            let answer = t.claim(&held.key, &t.ask()).await?;
            same("claim", answer, ClaimAnswer::Exhausted { attempts: 1 })?;
            same("forget", t.forget(&held.key).await?, true)?;
            record_new(t, &held.key).await?;
        }
    }
    let held = held_with(t, "expired", &t.ask_short(), &steps(2)).await?;
    t.pass(t.short()).await;
    let last = t.ask_at_most(1).with_ttl(t.short());
    same("claim", t.claim(&held.key, &last).await?, ClaimAnswer::Exhausted { attempts: 1 })?;
    t.pass(t.short()).await;
    record_new(t, &held.key).await
}

/// Checks that a new grant of this key has no steps and can record one.
async fn record_new(t: &Trial, key: &idem_core::RecordKey) -> Checked {
    let next = t.take(key).await?;
    same("steps", t.record(key).await?.steps, Vec::new())?;
    record(t, &next, &[step("new")]).await
}

pub(crate) async fn a_resolved_key_has_no_steps(t: &Trial) -> Checked {
    for fingerprint in [None, Some(print_of(4))] {
        let request = t.ask_in_doubt().with_fingerprint(fingerprint);
        let held = held_with(t, &format!("{fingerprint:?}"), &request, &steps(2)).await?;
        t.release(&held, ReleaseCause::Abandoned).await?;
        let word = Resolution::Record(Verdict::Completed, value("seen"));
        same("resolve", t.resolve(&held.key, &word).await?, ResolveAnswer::Resolved)?;
        let record = t.record(&held.key).await?;
        same("steps", record.steps, Vec::new())?;
        same("result", record.result, Some(value("seen")))?;
        same("fingerprint", record.fingerprint, fingerprint)?;
    }
    Ok(())
}

pub(crate) async fn a_new_generation_knows_no_step_of_the_one_before(t: &Trial) -> Checked {
    let held = held_with(t, "forgotten", &t.ask(), &steps(2)).await?;
    same("forget", t.forget(&held.key).await?, true)?;
    record(t, &t.take(&held.key).await?, &[step("new")]).await?;
    let short = t.short();
    let expired = t.ask().with_lease(short).with_ttl(short);
    for (name, fingerprint) in [("expired", None), ("expired with a fingerprint", Some(print_of(2)))] {
        let held = held_with(t, name, &expired.clone().with_fingerprint(fingerprint), &steps(2)).await?;
        t.pass(short * 2).await;
        same("record_step", t.record_step(&held, 2, &step("late")).await?, Lost)?;
        let next = t.take(&held.key).await?;
        same("attempt", next.grant.attempt, 1)?;
        same("steps", t.record(&held.key).await?.steps, Vec::new())?;
        record(t, &next, &[step("new")]).await?;
    }
    let held = held_with(t, "purged", &expired, &steps(2)).await?;
    t.pass(short * 2).await;
    t.purge(1_000).await?;
    record(t, &t.take(&held.key).await?, &[step("new")]).await
}

pub(crate) async fn steps_are_kept_as_long_as_their_record(t: &Trial) -> Checked {
    let held = held_with(t, "a", &t.ask_short().with_ttl(DAY), &steps(2)).await?;
    t.pass(t.short() * 3).await;
    t.purge(1_000).await?;
    same("steps", t.record(&held.key).await?.steps, steps(2))
}

pub(crate) async fn keys_do_not_share_steps(t: &Trial) -> Checked {
    let keys = ["a", "A", "a ", "a\0", "a/0", "b"];
    let mut held = Vec::new();
    for name in keys {
        held.push(held_with(t, name, &t.ask(), &[step(name)]).await?);
    }
    let elsewhere = t.grant(&t.key_in("2", "a")?, &t.ask()).await?;
    same("steps", t.record(&elsewhere.key).await?.steps, Vec::new())?;
    t.complete(&held[0], b"receipt").await?;
    t.forget(&held[5].key).await?;
    for (name, held) in keys.into_iter().zip(&held).take(5).skip(1) {
        same("steps", t.record(&held.key).await?.steps, vec![step(name)])?;
    }
    Ok(())
}
