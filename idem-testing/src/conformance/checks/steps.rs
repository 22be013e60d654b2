//! Recording the steps of a body.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, DAY, Held, LONG, Trial, print_of, same, that, value};
use crate::{Fault, OperationKind};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause,
    Resolution, ResolveAnswer, StoredResult, Tombstone, Verdict,
};

use RecordStepAnswer::{Lost, Recorded};

fn step(name: &str) -> RecordedStep {
    RecordedStep::new(name.to_owned(), None, value(format!("of {name}")))
}

fn steps(count: usize) -> Vec<RecordedStep> {
    (0..count).map(|number| step(&format!("step {number}"))).collect()
}

/// Records these steps, from the first position on.
async fn record(t: &Trial, held: &Held, steps: &[RecordedStep]) -> Checked {
    for (position, step) in (0..).zip(steps) {
        same("record_step", t.record_step(held, position, step).await?, Recorded)?;
    }
    same("steps", t.record(&held.key).await?.steps, steps.to_vec())
}

/// A fresh key in flight, with these steps recorded.
async fn held_with(t: &Trial, name: &str, request: &Claim, steps: &[RecordedStep]) -> Checked<Held> {
    let held = t.grant(&t.key(name)?, request).await?;
    record(t, &held, steps).await?;
    Ok(held)
}

pub(crate) async fn steps_are_recorded_in_their_order(t: &Trial) -> Checked {
    held_with(t, "a", &t.ask(), &steps(5)).await.map(drop)
}

pub(crate) async fn a_step_changes_nothing_but_the_steps(t: &Trial) -> Checked {
    for request in [t.ask(), t.ask_in_doubt().with_fingerprint(Some(print_of(9)))] {
        let key = t.key(format!("{:?}", request.on_crash))?;
        let held = t.grant(&key, &request).await?;
        let mut record = t.record(&key).await?;
        for (position, step) in (0..).zip(steps(3)) {
            same("record_step", t.record_step(&held, position, &step).await?, Recorded)?;
            record.steps.push(step);
            same("record", t.record(&key).await?, record.clone())?;
        }
        that(t.busy(&key).await? <= LONG, "the lease is as it was")?;
    }
    Ok(())
}

pub(crate) async fn a_step_is_taken_even_if_the_lease_is_over(t: &Trial) -> Checked {
    let held = t.bring(&t.key("a")?, Stage::Lapsed).await?;
    record(t, &held, &steps(2)).await
}

pub(crate) async fn a_step_is_all_that_it_was(t: &Trial) -> Checked {
    let names = ["", "a", "a\0", "\u{feff}", "line[7]", "\u{1F980}", "'; DROP TABLE idem_steps; --", "\n"];
    let results = [
        value(""),
        value("\0"),
        value(&b"\xff\xfe\xc3\x28"[..]),
        value("null"),
        value((0..=u8::MAX).collect::<Bytes>()),
        StoredResult::Tombstone(Tombstone::TooLarge),
        StoredResult::Tombstone(Tombstone::NotEncodable),
    ];
    let inputs = [None, Some(print_of(0)), Some(print_of(0xff))];
    let all = names.iter().flat_map(|name| {
        results
            .iter()
            .zip(inputs.iter().cycle())
            .map(|(result, input)| RecordedStep::new((*name).to_owned(), *input, result.clone()))
    });
    // Under a fingerprint and without, as both may lie beside the steps.
    for fingerprint in [None, Some(print_of(0))] {
        let request = t.ask().with_fingerprint(fingerprint);
        held_with(t, &format!("{}", fingerprint.is_some()), &request, &all.clone().collect::<Vec<_>>())
            .await?;
    }
    Ok(())
}

pub(crate) async fn a_thousand_steps_are_kept(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let held = t.grant(&key, &t.ask().with_lease(LONG)).await?;
    let (mut steps, begin) = (steps(1_000), Instant::now());
    for position in 0..1_000 {
        same("record_step", t.record_step(&held, position, &steps[position as usize]).await?, Recorded)?;
        // As many as a server that is slow takes in the time of a check.
        if position > 100 && begin.elapsed() > Duration::from_secs(40) {
            steps.truncate(position as usize + 1);
            break;
        }
    }
    let last = u32::try_from(steps.len()).unwrap_or(0).saturating_sub(1);
    same("the last, asked again", t.record_step(&held, last, &steps[last as usize]).await?, Recorded)?;
    same("the first, asked again", t.record_step(&held, 0, &steps[0]).await?, Recorded)?;
    same("another at its place", t.record_step(&held, 0, &steps[1]).await?, Lost)?;
    that(t.record(&key).await?.steps == steps, "the thousand steps came back otherwise")
}

pub(crate) async fn large_steps_are_kept(t: &Trial) -> Checked {
    // Three that a store with the smallest limit there is takes together.
    let most = t.store.max_result_bytes().unwrap_or(usize::MAX).min(100_000);
    let large = |byte: u8| step("large").with_result(value(vec![byte; most]));
    let held = held_with(t, "a", &t.ask(), &[large(0), large(0xff), large(b'x')]).await?;
    same("complete", t.complete(&held, b"receipt").await?, CompleteAnswer::Done)
}

pub(crate) async fn a_step_over_the_limit_is_refused_and_nothing_applied(t: &Trial) -> Checked {
    let Some(limit) = t.store.max_result_bytes().filter(|limit| *limit < 1 << 28) else { return Ok(()) };
    let held = held_with(t, "a", &t.ask(), &steps(1)).await?;
    let before = t.get(&held.key).await?;
    let large = step("large").with_result(value(vec![1; limit + 1]));
    let kind = t.store.record_step(&held.key, &held.recording(1, &large)).await.map_err(|error| error.kind());
    same("record_step", kind, Err(StoreErrorKind::TooLarge))?;
    t.unchanged(&held.key, &before).await?;
    let tombstone = large.with_result(StoredResult::Tombstone(Tombstone::TooLarge));
    same("record_step", t.record_step(&held, 1, &tombstone).await?, Recorded)?;
    same("steps", t.record(&held.key).await?.steps, vec![step("step 0"), tombstone])
}

pub(crate) async fn a_step_asked_again_is_recorded_once(t: &Trial) -> Checked {
    let steps = steps(3);
    let held = held_with(t, "a", &t.ask(), &steps).await?;
    let before = t.get(&held.key).await?;
    for (position, step) in (0..).zip(&steps) {
        same("record_step", t.record_step(&held, position, step).await?, Recorded)?;
    }
    t.unchanged(&held.key, &before).await
}

pub(crate) async fn a_lost_step_is_found_recorded(t: &Trial) -> Checked {
    let held = t.take(&t.key("a")?).await?;
    t.store.faults.next(OperationKind::RecordStep, Fault::FailAfter);
    let lost = t.store.record_step(&held.key, &held.recording(0, &step("one"))).await;
    that(lost.is_err(), "the answer should be lost")?;
    same("record_step", t.record_step(&held, 0, &step("one")).await?, Recorded)?;
    same("record_step", t.record_step(&held, 1, &step("two")).await?, Recorded)?;
    same("steps", t.record(&held.key).await?.steps, vec![step("one"), step("two")])
}

pub(crate) async fn another_step_at_a_position_that_is_taken_is_lost(t: &Trial) -> Checked {
    let input = Some(print_of(1));
    let there = step("charge").with_input(input);
    let held = held_with(t, "a", &t.ask(), &[step("reserve"), there.clone(), step("ship")]).await?;
    let before = t.get(&held.key).await?;
    for other in [
        there.clone().with_name("Charge".into()),
        there.clone().with_name("charg".into()),
        there.clone().with_name("charge\0".into()),
        there.clone().with_input(None),
        there.clone().with_input(Some(print_of(2))),
        there.clone().with_result(value("of charg")),
        there.clone().with_result(value("of charge ")),
        there.with_result(StoredResult::Tombstone(Tombstone::TooLarge)),
        step("reserve"),
        step("ship"),
    ] {
        same("record_step", t.record_step(&held, 1, &other).await?, Lost)?;
    }
    t.unchanged(&held.key, &before).await
}

pub(crate) async fn a_step_beyond_the_next_position_is_lost(t: &Trial) -> Checked {
    for count in 0..3 {
        let held = held_with(t, &format!("{count}"), &t.ask(), &steps(count)).await?;
        let before = t.get(&held.key).await?;
        for beyond in [1, 2, 1 << 20, u32::MAX - 3] {
            let position = u32::try_from(count).unwrap_or(0) + beyond;
            same("record_step", t.record_step(&held, position, &step("far")).await?, Lost)?;
        }
        t.unchanged(&held.key, &before).await?;
    }
    Ok(())
}

pub(crate) async fn a_step_that_comes_too_late_is_lost_and_changes_nothing(t: &Trial) -> Checked {
    let held = |stage: &Stage| matches!(stage, Stage::Running | Stage::Lapsed | Stage::InDoubt);
    for stage in Stage::ALL.into_iter().filter(|stage| !held(stage)) {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        same("record_step", t.record_step(&held, 0, &step("late")).await?, Lost)
            .map_err(|broken| broken.at(stage))?;
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_records_a_step_of_anothers_claim(t: &Trial) -> Checked {
    for stage in Stage::ALL {
        let key = t.key(format!("{stage:?}"))?;
        let held = t.bring(&key, stage).await?;
        let before = t.get(&key).await?;
        for thief in [held.with_another_owner(), held.with_fence(-1), held.with_fence(1)] {
            same("record_step", t.record_step(&thief, 0, &step("stolen")).await?, Lost)
                .map_err(|broken| broken.at(stage))?;
        }
        t.unchanged(&key, &before).await.map_err(|broken| broken.at(stage))?;
    }
    Ok(())
}

pub(crate) async fn nobody_is_told_of_anothers_step(t: &Trial) -> Checked {
    let held = held_with(t, "a", &t.ask(), &steps(2)).await?;
    for thief in [held.with_another_owner(), held.with_fence(-1), held.with_fence(1)] {
        for (position, step) in (0..).zip(steps(2)) {
            same("record_step", t.record_step(&thief, position, &step).await?, Lost)?;
        }
    }
    Ok(())
}

pub(crate) async fn a_step_for_an_absent_key_is_lost_and_makes_none(t: &Trial) -> Checked {
    let held = Held { key: t.key("b")?, ..t.take(&t.key("a")?).await? };
    same("record_step", t.record_step(&held, 0, &step("one")).await?, Lost)?;
    same("record", t.get(&held.key).await?, None)
}

pub(crate) async fn a_slow_owner_records_nothing_for_its_successor(t: &Trial) -> Checked {
    let slow = held_with(t, "a", &t.ask_short(), &steps(1)).await?;
    t.pass(t.short()).await;
    let next = t.take(&slow.key).await?;
    same("record_step by the slow one", t.record_step(&slow, 1, &step("slow")).await?, Lost)?;
    same("what it recorded", t.record_step(&slow, 0, &step("step 0")).await?, Lost)?;
    same("record_step by the next", t.record_step(&next, 1, &step("next")).await?, Recorded)?;
    same("steps", t.record(&slow.key).await?.steps, vec![step("step 0"), step("next")])
}

pub(crate) async fn a_late_copy_of_a_step_is_not_the_next_one(t: &Trial) -> Checked {
    let held = held_with(t, "a", &t.ask(), &steps(1)).await?;
    let copy = held.recording(0, &step("step 0"));
    same("release", t.release(&held, ReleaseCause::Failed).await?, ReleaseAnswer::Released)?;
    let next = t.take(&held.key).await?;
    same("record_step", t.record_step(&next, 1, &step("step 1")).await?, Recorded)?;
    let late = t.store.record_step(&held.key, &copy).await.map_err(|error| error.kind());
    same("the late copy", late, Ok(Lost))?;
    same("steps", t.record(&held.key).await?.steps, steps(2))
}

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
            // It is told so again, and the next generation begins without them.
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

/// A key of which no step is known any more.
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
