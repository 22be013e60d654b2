//! Checks that a walk through a store returns every record, without its result, and nothing else.

use std::collections::BTreeMap;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Held, LONG, Trial, answered, same, that};
use idem_core::Store as _;
use idem_core::listing::{List, Listed, ListedResult, Page};
use idem_core::protocol::{Record, RecordStepAnswer, RecordedStep, State, StoredResult, Tombstone};
use idem_core::{RecordKey, Scope};

/// More pages than any walk in these checks has.
const ENOUGH: usize = 100_000;

type Name = (String, String);

fn named(key: &RecordKey) -> Name {
    (key.scope().as_str().to_owned(), key.key().as_str().to_owned())
}

/// Walks to the end and calls `each` with every page.
async fn walk_with(t: &Trial, mut request: List, mut each: impl AsyncFnMut(&Page) -> Checked) -> Checked {
    for _ in 0..ENOUGH {
        let page = answered(t.store.list(&request).await)?;
        each(&page).await?;
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(()),
        }
    }
    Err(Broken(format!("a walk should end, and has not after {ENOUGH} pages")))
}

/// All records of a walk, by scope and key.
async fn walk(t: &Trial, request: List) -> Checked<BTreeMap<Name, Listed>> {
    let mut found = BTreeMap::new();
    walk_with(t, request, async |page: &Page| {
        that(page.unreadable.is_empty(), "every record can be read, and one is said not to be")?;
        found.extend(page.records.iter().map(|listed| (named(&listed.key), listed.clone())));
        Ok(())
    })
    .await?;
    Ok(found)
}

/// The scope of this trial's keys.
fn scope(t: &Trial) -> Checked<Scope> {
    Ok(t.key("any")?.scope().clone())
}

async fn of_scope(t: &Trial, limit: usize) -> Checked<BTreeMap<Name, Listed>> {
    walk(t, List::default().with_scope(Some(scope(t)?)).with_limit(limit)).await
}

/// Brings a new key to each stage that has a live record, and returns the stages with their keys.
async fn every_stage(t: &Trial) -> Checked<Vec<(Stage, RecordKey)>> {
    let mut keys = Vec::new();
    for stage in Stage::live() {
        let key = t.key(format!("{stage:?}"))?;
        t.bring(&key, stage).await?;
        keys.push((stage, key));
    }
    Ok(keys)
}

/// Makes a record in each stage that has a live record, records with odd names, and a record with steps.
/// Returns their keys.
async fn every_kind(t: &Trial) -> Checked<Vec<RecordKey>> {
    let mut keys: Vec<_> = every_stage(t).await?.into_iter().map(|(_, key)| key).collect();
    let long = "l".repeat(idem_core::MAX_KEY_BYTES);
    for text in
        ["\0", "a\0b", "%", "%7C", "{a}", "}{", "|", "#", "a b", " ", "*", "\\", "ü", "\u{10ffff}", &long]
    {
        keys.push(t.take(&t.key(text)?).await?.key);
    }
    let held = t.take(&t.key("steps")?).await?;
    for position in 0..3 {
        let result = StoredResult::Value(vec![b'7'; 1_000].into());
        let step = RecordedStep::new(format!("step {position}"), None, result);
        same("recording a step", t.record_step(&held, position, &step).await?, RecordStepAnswer::Recorded)?;
    }
    keys.push(held.key);
    Ok(keys)
}

/// Checks that exactly these keys were found.
fn exactly(found: &BTreeMap<Name, Listed>, keys: &[RecordKey]) -> Checked {
    let mut wanted: Vec<_> = keys.iter().map(named).collect();
    wanted.sort_unstable();
    wanted.dedup();
    same("the names that are listed", found.keys().cloned().collect::<Vec<_>>(), wanted)
}

/// Checks that the listed record equals `record`, without its steps, and that the kind of its result is
/// listed. Does not check the listed size.
fn listed_as(listed: &Listed, mut record: Record) -> Checked {
    let result = record.result.take();
    record.steps.clear();
    same("the record that is listed", &listed.record, &record)?;
    let fits = match (&listed.result, &result) {
        (None, None) => true,
        (Some(ListedResult::Value { .. }), Some(StoredResult::Value(_))) => true,
        (Some(ListedResult::Tombstone(listed)), Some(StoredResult::Tombstone(kept))) => listed == kept,
        _ => false,
    };
    that(fits, format!("{result:?} is listed as {:?}", listed.result))
}

pub(crate) async fn every_record_is_listed_as_it_is_and_a_walk_changes_nothing(t: &Trial) -> Checked {
    let forgotten = every_stage(t).await?;
    for (_, key) in &forgotten {
        t.forget(key).await?;
    }
    exactly(&of_scope(t, 100).await?, &[])?;
    let mut records = Vec::new();
    for key in every_kind(t).await? {
        records.push((t.record(&key).await?, key));
    }
    let keys: Vec<_> = records.iter().map(|(_, key)| key.clone()).collect();
    for limit in [0, 1, 2, keys.len(), keys.len() + 1, usize::MAX] {
        let found = of_scope(t, limit).await?;
        exactly(&found, &keys)?;
        for (record, key) in &records {
            let listed = listed_as(&found[&named(key)], record.clone());
            listed.map_err(|Broken(what)| Broken(format!("the key {:?}: {what}", key.key().as_str())))?;
        }
    }
    for (record, key) in records {
        t.unchanged(&key, &Some(record)).await?;
    }
    Ok(())
}

pub(crate) async fn a_listed_result_is_told_by_its_size_alone(t: &Trial) -> Checked {
    let large = vec![b'7'; 4_000];
    for (name, result) in [
        ("large", StoredResult::Value(large.into())),
        ("empty", StoredResult::Value(bytes::Bytes::new())),
        ("gone", StoredResult::Tombstone(Tombstone::TooLarge)),
    ] {
        let held = t.take(&t.key(name)?).await?;
        let size = match &result {
            StoredResult::Value(bytes) => bytes.len() as u64,
            StoredResult::Tombstone(_) => 0,
        };
        t.complete_with(&held.key, &held.completion("").with_result(result)).await?;
        let found = of_scope(t, 100).await?;
        let listed = &found[&named(&held.key)];
        same("the result in the listed record", &listed.record.result, &None)?;
        match listed.result {
            Some(ListedResult::Value { bytes }) => {
                // `bytes` is the size as stored. It may be smaller, because the store may compress results.
                let fits = bytes.is_none_or(|bytes| bytes <= size && (bytes > 0) == (size > 0));
                that(name != "gone" && fits, format!("{size} bytes are listed as {bytes:?}"))?;
            }
            other => same("what is listed", other, Some(ListedResult::Tombstone(Tombstone::TooLarge)))?,
        }
    }
    Ok(())
}

pub(crate) async fn a_walk_keeps_to_the_states_it_was_asked_for(t: &Trial) -> Checked {
    let keys = every_stage(t).await?;
    let all = [State::InFlight, State::Completed, State::Failed, State::Released, State::InDoubt];
    for states in [vec![State::InDoubt], vec![State::Failed, State::InFlight], all.to_vec(), Vec::new()] {
        let request = List::default().with_states(states.clone()).with_scope(Some(scope(t)?)).with_limit(2);
        let fits =
            |stage: &Stage| states.is_empty() || stage.state().is_some_and(|state| states.contains(&state));
        let wanted: Vec<_> =
            keys.iter().filter(|(stage, _)| fits(stage)).map(|(_, key)| key.clone()).collect();
        exactly(&walk(t, request).await?, &wanted)?;
    }
    Ok(())
}

pub(crate) async fn a_walk_keeps_to_the_scope_it_was_asked_for(t: &Trial) -> Checked {
    let ends = ["", "x", "|", "#", "%7C", "{", "*", "?", "\\", "["];
    let mut keys = Vec::new();
    for more in ends {
        for text in ["a", "x", "|a"] {
            keys.push(t.key_in(more, text)?);
        }
    }
    for key in &keys {
        t.take(key).await?;
    }
    for more in ends {
        let scope = t.key_in(more, "any")?.scope().clone();
        let wanted: Vec<_> = keys.iter().filter(|key| *key.scope() == scope).cloned().collect();
        for limit in [1, 100] {
            let request = List::default().with_scope(Some(scope.clone())).with_limit(limit);
            exactly(&walk(t, request).await?, &wanted)?;
        }
    }
    let ours = scope(t)?;
    for limit in [100, 1] {
        let mut records = walk(t, List::default().with_limit(limit)).await?;
        let are_few = records.len() < 200;
        records.retain(|(scope, _), _| scope.starts_with(ours.as_str()));
        exactly(&records, &keys)?;
        // Pages of one record would take too long if other tests left many records.
        if !are_few {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn a_pages_clock_tells_what_is_over(t: &Trial) -> Checked {
    for stage in [Stage::Running, Stage::Lapsed, Stage::Expired, Stage::ExpiredInFlight] {
        t.bring(&t.key(format!("{stage:?}"))?, stage).await?;
    }
    let mut seen = 0;
    walk_with(t, List::default().with_scope(Some(scope(t)?)), async |page: &Page| {
        for Listed { key, record, .. } in &page.records {
            let (lease_over, over) =
                (record.lease_until <= page.now, record.expires_at.is_some_and(|end| end <= page.now));
            let wanted = match key.key().as_str() {
                "Running" => Some((false, false)),
                "Lapsed" => Some((true, false)),
                _ => None,
            };
            match wanted {
                Some(wanted) => same("whether lease and time are over", (lease_over, over), wanted)?,
                None => that(over, "what expired is not listed, or can be told to be over")?,
            };
            seen += usize::from(!over);
        }
        Ok(())
    })
    .await?;
    same("how many live records are listed", seen, 2)
}

pub(crate) async fn a_walk_gives_what_stays_while_others_come_and_go(t: &Trial) -> Checked {
    let (mut staying, mut holders) = (Vec::new(), Vec::new());
    for number in 0..12 {
        staying.push(t.key(format!("stays {number}"))?);
        holders.push(t.take(&staying[number]).await?);
    }
    let mut passing: Vec<Held> = Vec::new();
    for number in 0..12 {
        passing.push(t.take(&t.key(format!("goes {number}"))?).await?);
    }
    let (mut found, mut round) = (BTreeMap::new(), 0);
    let request = List::default().with_scope(Some(scope(t)?)).with_limit(3);
    walk_with(t, request, async |page: &Page| {
        found.extend(page.records.iter().map(|listed| (named(&listed.key), listed.clone())));
        if let Some(held) = passing.pop() {
            t.forget(&held.key).await?;
            t.take(&t.key(format!("comes {round}"))?).await?;
        }
        round += 1;
        // A record may change during the walk.
        if let Some(held) = holders.get(round) {
            t.renew(held, 2 * LONG).await?;
        }
        Ok(())
    })
    .await?;
    found.retain(|(_, key), _| key.starts_with("stays"));
    exactly(&found, &staying)
}
