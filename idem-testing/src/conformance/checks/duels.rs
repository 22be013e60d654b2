//! Checks of two concurrent operations on one key: one of them is first, and both answers agree on that. Also checks of
//! rivals for the same position of a step.

use futures_util::future::join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Held, LONG, Trial, answered, same, that, value};
use crate::conformance::witness::Witness;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause,
    RenewAnswer,
};

/// The number of keys, and the least of a sample: each pair of delays once.
const SOME: usize = 96;
const FEW: usize = 16;

/// Starts one side of a duel after some yields, so that not all pairs meet at the same point.
async fn later<T>(steps: usize, side: impl Future<Output = T>) -> T {
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
    side.await
}

/// Runs two operations on the same key at once, on many keys.
async fn duel<A, B, FA, FB>(
    t: &Trial,
    stage: Stage,
    one: impl Fn(Witness, Held) -> FA,
    other: impl Fn(Witness, Held) -> FB,
) -> Checked<Vec<(Held, A, B)>>
where
    A: Send + 'static,
    B: Send + 'static,
    FA: Future<Output = Result<A, StoreError>> + Send + 'static,
    FB: Future<Output = Result<B, StoreError>> + Send + 'static,
{
    let keys = t.profile.part_of(SOME, FEW);
    let brought = (0..keys).map(|number| async move { t.bring(&t.key(format!("{number}"))?, stage).await });
    let held = join_all(brought).await.into_iter().collect::<Checked<Vec<_>>>()?;
    let pairs = t
        .race(keys, |number, store| {
            let held = held[number].clone();
            let rival = t.handles[(number + 1) % t.handles.len()].clone();
            let (one, other) = (one(store, held.clone()), other(rival, held.clone()));
            async move {
                let (one, other) = (later(number % 4, one), later(number / 4 % 4, other));
                let (one, other) = (tokio::spawn(one), tokio::spawn(other));
                (held, one.await, other.await)
            }
        })
        .await?;
    let ended = |_| Broken("a task of the race ended early".into());
    pairs
        .into_iter()
        .map(|(held, one, other)| {
            Ok((held, answered(one.map_err(ended)?)?, answered(other.map_err(ended)?)?))
        })
        .collect()
}

async fn complete(store: Witness, held: Held, result: &'static str) -> Result<CompleteAnswer, StoreError> {
    store.complete(&held.key, &held.completion(result)).await
}

async fn claim(store: Witness, held: Held, request: Claim) -> Result<ClaimAnswer, StoreError> {
    store.claim(&held.key, &request).await
}

pub(crate) async fn a_late_result_and_a_takeover_exclude_each_other(t: &Trial) -> Checked {
    let ended = duel(
        t,
        Stage::Lapsed,
        |store, held| complete(store, held, "late"),
        |store, held| claim(store, held, t.ask()),
    );
    for (held, completed, claimed) in ended.await? {
        match (completed, &claimed) {
            (CompleteAnswer::Done, ClaimAnswer::Replay(replay)) => {
                same("result", &replay.result, &value("late"))?;
            }
            (CompleteAnswer::Lost, ClaimAnswer::Granted(grant)) => {
                same("fence", t.record(&held.key).await?.fence, grant.fence)?;
            }
            _ => that(false, format!("complete was {completed:?} and the claim {claimed:?}"))?,
        }
    }
    Ok(())
}

pub(crate) async fn a_late_renewal_and_a_takeover_exclude_each_other(t: &Trial) -> Checked {
    let ended = duel(
        t,
        Stage::Lapsed,
        |store, held| async move { store.renew(&held.key, &held.renewal(LONG)).await },
        |store, held| claim(store, held, t.ask()),
    );
    for (_, renewed, claimed) in ended.await? {
        let agrees = matches!(
            (renewed, &claimed),
            (RenewAnswer::Held, ClaimAnswer::Busy { .. }) | (RenewAnswer::Lost, ClaimAnswer::Granted(_))
        );
        that(agrees, format!("renew was {renewed:?} and the claim {claimed:?}"))?;
    }
    Ok(())
}

pub(crate) async fn a_result_and_a_release_exclude_each_other(t: &Trial) -> Checked {
    let ended = duel(
        t,
        Stage::Running,
        |store, held| complete(store, held, "r"),
        |store, held| async move { store.release(&held.key, &held.release(ReleaseCause::Failed)).await },
    );
    for (held, completed, released) in ended.await? {
        let done = t.record(&held.key).await?.result.is_some();
        let agrees = match (completed, released) {
            (CompleteAnswer::Done, ReleaseAnswer::Lost) => done,
            (CompleteAnswer::Lost, ReleaseAnswer::Released) => !done,
            _ => false,
        };
        that(agrees, format!("complete was {completed:?}, release {released:?}, a result is there: {done}"))?;
    }
    Ok(())
}

pub(crate) async fn a_result_that_meets_its_removal_does_not_come_back(t: &Trial) -> Checked {
    let ended = duel(
        t,
        Stage::Running,
        |store, held| complete(store, held, "r"),
        |store, held| async move { store.forget(&held.key).await },
    );
    for (held, completed, forgotten) in ended.await? {
        same("forget", forgotten, true)?;
        that(
            t.get(&held.key).await?.is_none(),
            format!("complete was {completed:?} and the record is back"),
        )?;
    }
    Ok(())
}

pub(crate) async fn a_purge_and_a_claim_of_an_expired_key_do_not_meet(t: &Trial) -> Checked {
    let ended = duel(
        t,
        Stage::Expired,
        |store, _| async move { store.purge(1_000).await },
        |store, held| claim(store, held, t.ask()),
    );
    for (held, _, claimed) in ended.await? {
        match claimed {
            ClaimAnswer::Granted(grant) => {
                that(grant.fence > held.grant.fence, "a new grant has a new fence")?;
                same("fence", t.record(&held.key).await?.fence, grant.fence)?;
            }
            other => that(false, format!("an expired key was answered {other:?}"))?,
        }
    }
    Ok(())
}

pub(crate) async fn a_late_step_and_a_takeover_exclude_each_other(t: &Trial) -> Checked {
    let step = RecordedStep::new("late".into(), None, value("r"));
    let late = step.clone();
    let ended = duel(
        t,
        Stage::Lapsed,
        move |store, held| {
            let step = late.clone();
            async move { store.record_step(&held.key, &held.recording(0, &step)).await }
        },
        |store, held| claim(store, held, t.ask()),
    );
    for (held, recorded, claimed) in ended.await? {
        that(
            matches!(claimed, ClaimAnswer::Granted(_)),
            format!("the lapsed lease should be taken over, and the answer is {claimed:?}"),
        )?;
        let expected = match recorded {
            RecordStepAnswer::Recorded => vec![step.clone()],
            _ => Vec::new(),
        };
        same("steps", t.record(&held.key).await?.steps, expected)?;
    }
    Ok(())
}

pub(crate) async fn rivals_for_one_position_leave_one_step(t: &Trial) -> Checked {
    const RIVALS: usize = 12;
    let held = t.take(&t.key("a")?).await?;
    let step = |name: String| {
        let result = value(format!("of {name}"));
        RecordedStep::new(name, None, result)
    };
    for position in 0..8 {
        let answers = t
            .race(RIVALS, |number, store| {
                let held = held.clone();
                async move {
                    // Each pair of rivals records the same step.
                    let step = step(format!("{}", number / 2));
                    (store.record_step(&held.key, &held.recording(position, &step)).await, step)
                }
            })
            .await?;
        let mut won = Vec::new();
        for (answer, step) in answers {
            match answer.map_err(|error| error.kind()) {
                Ok(RecordStepAnswer::Recorded) => won.push(step),
                Ok(_) => {}
                Err(kind) => same("an error of a rival", Some(kind), None)?,
            }
        }
        let recorded = t.record(&held.key).await?.steps;
        same("steps", recorded.len(), usize::try_from(position).unwrap_or(0) + 1)?;
        that(
            won.len() == 2 && won.iter().all(|step| recorded.last() == Some(step)),
            format!("one step and its copy should be recorded, and these were: {won:?}"),
        )?;
    }
    Ok(())
}

pub(crate) async fn a_doubt_is_settled_by_one_of_many(t: &Trial) -> Checked {
    const RIVALS: usize = 12;
    for round in 0..8 {
        let held = t.bring(&t.key(format!("{round}"))?, Stage::InDoubt).await?;
        let answers = t
            .race(RIVALS, |_, store| {
                let (key, request) = (held.key.clone(), t.ask_settling());
                async move { store.claim(&key, &request).await }
            })
            .await?;
        let granted = answers.iter().filter(|answer| matches!(answer, Ok(ClaimAnswer::Granted(_)))).count();
        same("grants", granted, 1)?;
        same("attempt", t.record(&held.key).await?.attempt, 2)?;
    }
    Ok(())
}
