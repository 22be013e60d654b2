//! What a call costs on Redis: `RedisStore` beside a raw pair of commands, a thin pair of scripts and the
//! crate `idempotent`, on one server that this starts, in one run, all with one connection.
//!
//! `cargo run --release -p idem-redis-cost [SECONDS]`. The arms take turns in short rounds, so that what else
//! runs on the machine falls on all alike; printed is the median of the rounds, and its ratio.

mod arms;

use std::error::Error;
use std::time::{Duration, Instant};

use arms::{Arm, Arms};
use futures_util::future::try_join_all;
use idem_test_servers::Redis;

/// How many calls at once.
const TASKS: [usize; 2] = [1, 64];
const ROUNDS: usize = 9;
/// How many results there are to replay.
const KEPT: usize = 1_000;

type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What one round of one arm showed.
struct Round {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Processor time of this process and of the server, in microseconds a call.
    client: f64,
    server: f64,
}

#[tokio::main]
async fn main() -> Anything<()> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let mut redis = Redis::start();
    let server = redis.server().id().ok_or("the server ended")?;
    let arms = Arms::new(&redis.url()).await?;
    for arm in Arm::ALL {
        for number in 0..KEPT {
            arms.fresh(arm, &format!("kept/{number}")).await?;
        }
    }
    for replay in [false, true] {
        for tasks in TASKS {
            let mut rounds: Vec<Vec<Round>> = Arm::ALL.iter().map(|_| Vec::new()).collect();
            for round in 0..ROUNDS {
                for (arm, rounds) in Arm::ALL.into_iter().zip(&mut rounds) {
                    let time = Duration::from_secs_f64(seconds);
                    rounds.push(measure(&arms, server, (arm, replay, tasks, round), time).await?);
                }
            }
            print(replay, tasks, rounds);
        }
    }
    Ok(())
}

async fn measure(
    arms: &Arms,
    server: u32,
    (arm, replay, tasks, round): (Arm, bool, usize, usize),
    time: Duration,
) -> Anything<Round> {
    let (client_before, server_before) = (processor("self")?, processor(&server.to_string())?);
    let begin = Instant::now();
    let lanes = (0..tasks).map(|task| {
        let arms = arms.clone();
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(100_000);
            let mut number = 0_usize;
            while begin.elapsed() < time {
                let started = Instant::now();
                if replay {
                    arms.replay(arm, &format!("kept/{}", (task * 31 + number) % KEPT)).await?;
                } else {
                    arms.fresh(arm, &format!("{replay}/{tasks}/{round}/{task}/{number}")).await?;
                }
                times.push(started.elapsed());
                number += 1;
            }
            Anything::Ok(times)
        })
    });
    let lanes: Anything<Vec<_>> = try_join_all(lanes).await?.into_iter().collect();
    let elapsed = begin.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = lanes?.into_iter().flatten().collect();
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
    let calls = times.len() as f64;
    Ok(Round {
        per_second: calls / elapsed,
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        client: (processor("self")? - client_before) / calls,
        server: (processor(&server.to_string())? - server_before) / calls,
    })
}

/// The processor time of a process until now, in microseconds.
fn processor(process: &str) -> Anything<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(')').ok_or("no such process")?.1;
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks * 10_000.0)
}

fn print(replay: bool, tasks: usize, rounds: Vec<Vec<Round>>) {
    println!("{}, {tasks} at once", if replay { "replay" } else { "fresh call: claim and complete" });
    println!(
        "  {:<24} {:>10} {:>9} {:>9} {:>8} {:>10} {:>10}",
        "", "calls/s", "p50 us", "p99 us", "of raw", "client us", "server us"
    );
    let mut raw = None;
    for (arm, mut rounds) in Arm::ALL.into_iter().zip(rounds) {
        rounds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        let Some(middle) = rounds.get(ROUNDS / 2) else { continue };
        let raw = *raw.get_or_insert(middle.per_second);
        println!(
            "  {:<24} {:>10.0} {:>9} {:>9} {:>8.2} {:>10.1} {:>10.1}",
            arm.name(),
            middle.per_second,
            middle.p50.as_micros(),
            middle.p99.as_micros(),
            middle.per_second / raw,
            mean(&rounds, |round| round.client),
            mean(&rounds, |round| round.server),
        );
    }
}

/// Processor time counts what else runs hardly at all, so all rounds count.
fn mean(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "there are few rounds")]
    let count = rounds.len() as f64;
    rounds.iter().map(of).sum::<f64>() / count
}
