//! Checks of steps: a record may have many steps with any bytes, and the next record of the key has none of
//! them.

use bytes::Bytes;

use crate::conformance::trial::{Checked, Held, Trial, print_of, same, value};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::{Claim, CompleteAnswer, RecordStepAnswer, RecordedStep, StoredResult, Tombstone};

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

/// A new key in flight, with these steps recorded.
async fn held_with(t: &Trial, name: &str, request: &Claim, steps: &[RecordedStep]) -> Checked<Held> {
    let held = t.grant(&t.key(name)?, request).await?;
    record(t, &held, steps).await?;
    Ok(held)
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
    // Once without a fingerprint and once with one, because a store may keep the fingerprint beside the
    // steps.
    for fingerprint in [None, Some(print_of(0))] {
        let request = t.ask().with_fingerprint(fingerprint);
        held_with(t, &format!("{}", fingerprint.is_some()), &request, &all.clone().collect::<Vec<_>>())
            .await?;
    }
    // The same key of another scope has none of these steps.
    let elsewhere = t.take(&t.key_in("2", "true")?).await?;
    same("steps", t.record(&elsewhere.key).await?.steps, Vec::new())
}

pub(crate) async fn a_thousand_steps_are_kept(t: &Trial) -> Checked {
    held_with(t, "a", &t.ask(), &steps(t.profile.part_of(1_000, 200))).await.map(drop)
}

pub(crate) async fn large_steps_are_kept(t: &Trial) -> Checked {
    // At most 100,000 bytes, so that every store accepts three such steps in one record.
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

pub(crate) async fn another_step_at_a_position_that_is_taken_is_lost(t: &Trial) -> Checked {
    let there = step("charge").with_input(Some(print_of(1)));
    let held = held_with(t, "a", &t.ask(), std::slice::from_ref(&there)).await?;
    for other in [
        there.clone().with_name("Charge".into()),
        there.clone().with_input(None),
        there.clone().with_input(Some(print_of(2))),
        there.clone().with_result(value("of charg")),
    ] {
        same("record_step", t.record_step(&held, 0, &other).await?, Lost)?;
    }
    same("steps", t.record(&held.key).await?.steps, vec![there])
}

pub(crate) async fn a_new_generation_knows_no_step_of_the_one_before(t: &Trial) -> Checked {
    let held = held_with(t, "forgotten", &t.ask(), &steps(2)).await?;
    same("forget", t.forget(&held.key).await?, true)?;
    record(t, &t.take(&held.key).await?, &[step("new")]).await?;
    let short = t.short();
    // A slow server may need longer than `short` to record the steps, so the lease is long at first. The
    // renewal below shortens the lease to `short`. The record expires `short` after the end of the lease.
    let expiring = t.ask().with_ttl(short);
    for (name, fingerprint, is_purged) in [
        ("expired", None, false),
        ("expired with a fingerprint", Some(print_of(2)), false),
        ("purged", None, true),
    ] {
        let held = held_with(t, name, &expiring.clone().with_fingerprint(fingerprint), &steps(2)).await?;
        t.renew(&held, short).await?;
        t.pass(short * 2).await;
        if is_purged {
            t.purge(1_000).await?;
        }
        same("record_step", t.record_step(&held, 2, &step("late")).await?, Lost)?;
        let next = t.take(&held.key).await?;
        same("attempt", next.grant.attempt, 1)?;
        same("steps", t.record(&held.key).await?.steps, Vec::new())?;
        record(t, &next, &[step("new")]).await?;
    }
    Ok(())
}
