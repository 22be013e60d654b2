//! Starts the worker processes, and kills, stops and terminates them.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use idem_test_servers::program::Process;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rig_stores::servers::Servers;

use crate::worker::Window;
use crate::{Failure, LEASE, Soak};

/// The number of SIGTERM.
const TERMINATE: i32 = 15;

struct Worker {
    process: Process,
    stopped_until: Option<Instant>,
    /// Whether the worker got SIGTERM.
    ending: bool,
}

/// How often each disturbance happened.
#[derive(Default)]
pub(crate) struct Disturbed {
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) servers: u64,
    pub(crate) ended: u64,
}

/// Runs the workers for the given time, and disturbs them and the servers.
pub(crate) async fn disturb(
    options: &Soak,
    folder: &Path,
    (servers, store): (&mut Servers, &str),
    seed: u64,
    window: &Window,
) -> Result<Disturbed, Failure> {
    let (mut random, program) = (SmallRng::seed_from_u64(seed), std::env::current_exe()?);
    let mut names = 0_u64..;
    let mut start = || {
        let Window { keys, begin, millis, pace } = *window;
        let numbers = [names.next().unwrap_or_default(), seed, keys.into(), begin, millis, pace.into()];
        let mut command = Command::new(&program);
        command.arg("worker").arg(folder).arg(store).args(numbers.map(|number| number.to_string()));
        Worker { process: Process::spawn(command.stdout(Stdio::null())), stopped_until: None, ending: false }
    };
    let mut workers: Vec<_> = (0..options.workers).map(|_| start()).collect();
    let mut disturbed = Disturbed::default();
    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.random_range(20..120)) * window.pace).await;
        for worker in &mut workers {
            if let Some(status) = worker.process.status() {
                // A worker that has just started has no handler for SIGTERM yet, so the signal kills it.
                let ended = status.success() || status.signal() == Some(TERMINATE);
                if !worker.ending || !ended {
                    return Err(format!("a worker ended by itself: {status}").into());
                }
                *worker = start();
            }
            if worker.stopped_until.is_some_and(|until| Instant::now() >= until) {
                worker.process.signal("-CONT");
                worker.stopped_until = None;
            }
        }
        let part = begin.elapsed().as_secs_f64() / options.seconds as f64;
        disturbed.servers += u64::from(servers.disturb(part));
        let chosen = random.random_range(0..workers.len());
        if random.random_bool(0.6) {
            workers[chosen] = start();
            disturbed.kills += 1;
        } else if random.random_bool(0.2) && !workers[chosen].ending {
            // A stopped worker ends when it is continued.
            workers[chosen].process.signal("-TERM");
            workers[chosen].ending = true;
            disturbed.ended += 1;
        } else if workers[chosen].stopped_until.is_none() {
            workers[chosen].process.signal("-STOP");
            let past_the_lease = (LEASE + Duration::from_millis(random.random_range(0..600))) * window.pace;
            workers[chosen].stopped_until = Some(Instant::now() + past_the_lease);
            disturbed.stops += 1;
        }
    }
    Ok(disturbed)
}
