//! Checks of recording the steps of a body.

mod lifetime;

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Checked, Held, LONG, Trial, print_of, same, that, value};
use crate::{Fault, OperationKind};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{
    Claim, CompleteAnswer, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause, StoredResult,
    Tombstone,
};

use RecordStepAnswer::{Lost, Recorded};
pub(crate) use lifetime::{
    a_new_generation_knows_no_step_of_the_one_before, a_refused_claim_leaves_the_steps,
    a_resolved_key_has_no_steps, a_result_takes_the_place_of_the_steps,
    a_takeover_has_the_steps_of_who_was_taken_over, keys_do_not_share_steps,
    steps_are_kept_as_long_as_their_record, steps_outlive_a_doubt_and_an_operators_release,
    steps_outlive_a_release_and_a_new_fingerprint, steps_outlive_a_renewal,
    steps_outlive_attempts_that_ran_out,
};

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

/// A new key in flight, with these steps recorded.
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
    // With a fingerprint and without, because a store may keep the fingerprint beside the steps.
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
        // On a slow server, only as many steps as fit in the time of a check.
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
    // Of a size of which also a store with the smallest limit accepts three.
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
