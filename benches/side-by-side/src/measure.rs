//! Measures the arms: they take turns in short rounds, so that other load on the machine affects all of them
//! equally. The figures of an arm are the figures of its round with the median rate.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use idem_test_servers::meter::{Meter, Said};

use crate::arm::{Anything, Arm};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Fresh,
    Replay,
    /// A fresh call whose body takes fifty milliseconds.
    Work,
}

/// How long and how often each arm is measured.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    /// The number of results to replay.
    pub(crate) kept: usize,
}

/// The measurements of one arm.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// Records the results that will be replayed.
pub(crate) async fn keep(arms: &[Arm], kept: usize) -> Anything<()> {
    for arm in arms {
        let calls = stream::iter(0..kept).map(|number| (arm.fresh)(format!("kept/{number}")));
        calls.buffer_unordered(64).try_collect::<()>().await?;
    }
    Ok(())
}

/// The figures of every arm that does this kind of call, in the order of the arms.
pub(crate) async fn arms(
    arms: &[Arm],
    kind: Kind,
    tasks: usize,
    plan: Plan,
) -> Anything<Vec<(&'static str, Figures)>> {
    let competing: Vec<&Arm> = arms.iter().filter(|arm| kind != Kind::Work || arm.work.is_some()).collect();
    let mut rounds: Vec<Vec<Figures>> = competing.iter().map(|_| Vec::new()).collect();
    // The first round is a warm-up.
    for round in 0..=plan.rounds {
        for (arm, rounds) in competing.iter().zip(&mut rounds) {
            let figures = one(arm, kind, (tasks, round), plan).await?;
            if round > 0 {
                rounds.push(figures);
            }
        }
    }
    let middle = |mut rounds: Vec<Figures>| {
        rounds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        rounds.get(rounds.len() / 2).copied().unwrap_or_default()
    };
    Ok(competing.iter().zip(rounds).map(|(arm, rounds)| (arm.name, middle(rounds))).collect())
}

async fn one(arm: &Arm, kind: Kind, (tasks, round): (usize, usize), plan: Plan) -> Anything<Figures> {
    let begin = Instant::now();
    let callers = (0..tasks).map(|task| {
        let arm = arm.clone();
        tokio::spawn(async move {
            let call = match (kind, &arm.work) {
                (Kind::Work, Some(work)) => work,
                (Kind::Replay, _) => &arm.replay,
                _ => &arm.fresh,
            };
            let mut times = Vec::with_capacity(100_000);
            let mut number = 0_usize;
            // At least one call is made, even if the time is very short.
            while number == 0 || begin.elapsed() < plan.time {
                let key = match kind {
                    Kind::Replay => format!("kept/{}", (task * 31 + number) % plan.kept),
                    Kind::Fresh => format!("fresh/{tasks}/{round}/{task}/{number}"),
                    Kind::Work => format!("work/{tasks}/{round}/{task}/{number}"),
                };
                let started = Instant::now();
                call(key).await?;
                times.push(started.elapsed());
                number += 1;
            }
            Anything::Ok(times)
        })
    });
    let times: Anything<Vec<_>> = try_join_all(callers).await?.into_iter().collect();
    let elapsed = begin.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = times?.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
    let calls = times.len() as f64;
    Ok(Figures { per_second: calls / elapsed, p50: at(50), p99: at(99) })
}

/// Measures the average traffic with the server for a fresh call and for a replay. A single caller makes the
/// calls one after the other. The arms must be connected through the meter.
pub(crate) async fn said(arms: &[Arm], meter: &Meter) -> Anything<Vec<(&'static str, Said, Said)>> {
    const CALLS: u32 = 200;
    let mut all = Vec::new();
    for arm in arms {
        // Warms up: connections, scripts and prepared statements are made only once.
        for number in 0..50 {
            let key = format!("warm/{number}");
            (arm.fresh)(key.clone()).await?;
            (arm.replay)(key).await?;
        }
        let before = meter.now();
        for number in 0..CALLS {
            (arm.fresh)(format!("said/{number}")).await?;
        }
        let fresh = meter.since(before, CALLS);
        let before = meter.now();
        for number in 0..CALLS {
            (arm.replay)(format!("said/{number}")).await?;
        }
        all.push((arm.name, fresh, meter.since(before, CALLS)));
    }
    Ok(all)
}
