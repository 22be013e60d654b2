//! Checks of two concurrent operations on one key: both answers must agree on which operation came first.

use futures_util::future::join_all;

use crate::conformance::stage::Stage;
use crate::conformance::trial::{Broken, Checked, Held, LONG, Trial, answered, same, that, value};
use crate::conformance::witness::Witness;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::{
    Answer, ClaimAnswer, CompleteAnswer, RecordStepAnswer, RecordedStep, ReleaseAnswer, ReleaseCause,
    RenewAnswer, Request,
};

/// How many keys a duel uses: `SOME` in a full run, and at least `FEW` in a sample (`Profile::sample`). With
/// 16 keys, each pair of delays (0 to 3 yields on each side) occurs once.
const SOME: usize = 96;
const FEW: usize = 16;

/// Starts one side of a duel after `steps` yields. The numbers of yields differ between duels, so that not
/// all duels meet at the same point.
async fn later<T>(steps: usize, side: impl Future<Output = T>) -> T {
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
    side.await
}

/// Runs `request` and `rival` on the same key at the same time, for each of many new keys in `stage`.
async fn duel<A, F>(
    t: &Trial,
    (name, stage): (&str, Stage),
    request: impl Fn(&Held) -> Request,
    rival: impl Fn(Witness, Held) -> F,
) -> Checked<Vec<(Held, Answer, A)>>
where
    A: Send + 'static,
    F: Future<Output = Result<A, StoreError>> + Send + 'static,
{
    let keys = t.profile.part_of(SOME, FEW);
    let brought =
        (0..keys).map(|number| async move { t.bring(&t.key(format!("{name} {number}"))?, stage).await });
    let held = join_all(brought).await.into_iter().collect::<Checked<Vec<_>>>()?;
    let pairs = t
        .race(keys, |number, store| {
            let (held, request) = (held[number].clone(), request(&held[number]));
            let key = held.key.clone();
            let one = async move { store.apply(&key, request).await };
            let other = rival(t.handles[(number + 1) % t.handles.len()].clone(), held.clone());
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

/// Makes the request that a late holder sends.
type Late<'a> = &'a dyn Fn(&Held) -> Request;

pub(crate) async fn a_late_request_and_a_takeover_exclude_each_other(t: &Trial) -> Checked {
    let step = RecordedStep::new("late".into(), None, value("r"));
    let requests: [(&str, Late<'_>); 3] = [
        ("result", &|held| held.completion("late").into()),
        ("renewal", &|held| held.renewal(LONG).into()),
        ("step", &|held| held.recording(0, &step).into()),
    ];
    for (name, request) in requests {
        let ended = duel(t, (name, Stage::Lapsed), request, |store, held| {
            let claim = t.ask();
            async move { store.claim(&held.key, &claim).await }
        });
        for (held, answer, claimed) in ended.await? {
            let record = t.record(&held.key).await?;
            let agrees = match (&answer, &claimed) {
                (Answer::Complete(CompleteAnswer::Done), ClaimAnswer::Replay(replay)) => {
                    replay.result == value("late")
                }
                (Answer::Renew(RenewAnswer::Held), ClaimAnswer::Busy { .. }) => true,
                (Answer::RecordStep(RecordStepAnswer::Recorded), ClaimAnswer::Granted(grant)) => {
                    record.fence == grant.fence && record.steps == [step.clone()]
                }
                (
                    Answer::Complete(CompleteAnswer::Lost)
                    | Answer::Renew(RenewAnswer::Lost)
                    | Answer::RecordStep(RecordStepAnswer::Lost),
                    ClaimAnswer::Granted(grant),
                ) => record.fence == grant.fence && record.steps.is_empty(),
                _ => false,
            };
            that(agrees, format!("the late {name} was answered {answer:?} and the claim {claimed:?}"))?;
        }
    }
    Ok(())
}

pub(crate) async fn a_result_and_a_release_exclude_each_other(t: &Trial) -> Checked {
    let ended = duel(
        t,
        ("a", Stage::Running),
        |held| held.completion("r").into(),
        |store, held| async move { store.release(&held.key, &held.release(ReleaseCause::Failed)).await },
    );
    for (held, completed, released) in ended.await? {
        let done = t.record(&held.key).await?.result.is_some();
        let agrees = match (&completed, &released) {
            (Answer::Complete(CompleteAnswer::Done), ReleaseAnswer::Lost) => done,
            (Answer::Complete(CompleteAnswer::Lost), ReleaseAnswer::Released) => !done,
            _ => false,
        };
        that(agrees, format!("complete was {completed:?}, release {released:?}, a result is there: {done}"))?;
    }
    Ok(())
}

pub(crate) async fn a_result_that_meets_its_removal_does_not_come_back(t: &Trial) -> Checked {
    let ended = duel(
        t,
        ("a", Stage::Running),
        |held| held.completion("r").into(),
        |store, held| async move { store.forget(&held.key).await },
    );
    for (held, completed, forgotten) in ended.await? {
        same("forget", forgotten, true)?;
        let is_gone = t.get(&held.key).await?.is_none();
        that(is_gone, format!("complete was {completed:?} and the record is back"))?;
    }
    Ok(())
}

pub(crate) async fn a_purge_and_a_claim_of_an_expired_key_do_not_meet(t: &Trial) -> Checked {
    let ended = duel(
        t,
        ("a", Stage::Expired),
        |_| t.ask().into(),
        |store, _| async move { store.purge(1_000).await },
    );
    for (held, claimed, _) in ended.await? {
        match claimed {
            Answer::Claim(ClaimAnswer::Granted(grant)) => {
                that(grant.fence > held.grant.fence, "a new grant has a new fence")?;
                same("fence", t.record(&held.key).await?.fence, grant.fence)?;
            }
            other => that(false, format!("an expired key was answered {other:?}"))?,
        }
    }
    Ok(())
}
