//! Measures the arms: they take turns in short rounds, so that other load on the machine affects all of them equally.
//! The figures are the median of the rounds.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use idem_test_servers::meter::Said;

use crate::arm::{Anything, Arm, Contest};

/// The number of results to replay.
const KEPT: usize = 1_000;

/// The kind of call that is measured.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Fresh,
    Replay,
    Work,
}

/// How long and how often each arm is measured.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

/// The measurements of one arm.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Processor time of this process and of the server, in microseconds per call.
    pub(crate) client: f64,
    pub(crate) server: f64,
}

/// Records the results that will be replayed.
pub(crate) async fn keep(arms: &[Arm]) -> Anything<()> {
    for arm in arms {
        for chunk in 0..KEPT / 50 {
            let kept = (0..50).map(|number| (arm.fresh)(format!("kept/{}", chunk * 50 + number)));
            try_join_all(kept).await?;
        }
    }
    Ok(())
}

/// The figures of every arm that does this kind of call, in the order of the arms.
pub(crate) async fn arms(
    contest: &Contest,
    kind: Kind,
    tasks: usize,
    plan: Plan,
) -> Anything<Vec<(&'static str, Figures)>> {
    let server = contest.server.as_ref().map(|(id, _)| *id).filter(|id| *id != std::process::id());
    let competing: Vec<&Arm> =
        contest.arms.iter().filter(|arm| kind != Kind::Work || arm.work.is_some()).collect();
    let mut rounds: Vec<Vec<Figures>> = competing.iter().map(|_| Vec::new()).collect();
    // The first round is a warm-up.
    for round in 0..=plan.rounds {
        for (arm, rounds) in competing.iter().zip(&mut rounds) {
            let figures = one(arm, kind, (tasks, round), server, plan.time).await?;
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

async fn one(
    arm: &Arm,
    kind: Kind,
    (tasks, round): (usize, usize),
    server: Option<u32>,
    time: Duration,
) -> Anything<Figures> {
    let before = processors(server)?;
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
            while number == 0 || begin.elapsed() < time {
                let key = match kind {
                    Kind::Replay => format!("kept/{}", (task * 31 + number) % KEPT),
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
    let after = processors(server)?;
    let mut times: Vec<Duration> = times?.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |hundredth: usize| times.get(times.len() * hundredth / 100).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
    let calls = times.len() as f64;
    Ok(Figures {
        per_second: calls / elapsed,
        p50: at(50),
        p99: at(99),
        client: (after.0 - before.0) / calls,
        server: (after.1 - before.1) / calls,
    })
}

/// The processor time used so far by this process, and by the server with its children, in microseconds.
fn processors(server: Option<u32>) -> Anything<(f64, f64)> {
    let Some(server) = server else { return Ok((processor("self")?, 0.0)) };
    let mut sum = processor(&server.to_string())?;
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        // A process that has ended meanwhile is not counted.
        sum += processor(child).unwrap_or_default();
    }
    Ok((processor("self")?, sum))
}

fn processor(process: &str) -> Anything<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(')').ok_or("no such process")?.1;
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks * 10_000.0)
}

/// The traffic of one fresh call and of one replay with the server, for a single caller that makes one call after
/// another.
pub(crate) async fn said(contest: &Contest) -> Anything<Vec<(&'static str, Said, Said)>> {
    const CALLS: u32 = 200;
    let mut all = Vec::new();
    for (arm, meter) in &contest.metered {
        // Warms up: connections, scripts and prepared statements are made only once.
        for number in 0..50 {
            let key = format!("warm/{}/{number}", meter.port);
            (arm.fresh)(key.clone()).await?;
            (arm.replay)(key).await?;
        }
        let keys: Vec<String> = (0..CALLS).map(|number| format!("said/{}/{number}", meter.port)).collect();
        let before = meter.now();
        for key in &keys {
            (arm.fresh)(key.clone()).await?;
        }
        let fresh = meter.since(before, CALLS);
        let before = meter.now();
        for key in keys {
            (arm.replay)(key).await?;
        }
        all.push((arm.name, fresh, meter.since(before, CALLS)));
    }
    Ok(all)
}
