//! Starts the worker processes, and kills, stops and terminates them.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rig_stores::servers::Servers;

use crate::worker::Window;
use crate::{Failure, LEASE, Soak};

/// The number of SIGTERM.
const TERMINATE: i32 = 15;

/// A worker process that does not outlive the soak.
struct Worker {
    process: Child,
    stopped_until: Option<Instant>,
    /// Whether it got SIGTERM.
    ending: bool,
}

impl Worker {
    fn start(folder: &Path, store: &str, name: u64, seed: u64, window: &Window) -> Result<Self, Failure> {
        let process = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(folder)
            .arg(store)
            .args(
                [name, seed, u64::from(window.keys), window.begin, window.millis, u64::from(window.pace)]
                    .map(|number| number.to_string()),
            )
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, stopped_until: None, ending: false })
    }

    fn signal(&self, signal: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status()?;
        if sent.success() { Ok(()) } else { Err(format!("kill {signal} failed").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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
    let mut random = SmallRng::seed_from_u64(seed);
    let mut names = 0..;
    let mut start = || Worker::start(folder, store, names.next().unwrap_or_default(), seed, window);
    let mut workers = (0..options.workers).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    let mut disturbed = Disturbed::default();
    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.random_range(20..120)) * window.pace).await;
        for worker in &mut workers {
            if let Some(status) = worker.process.try_wait()? {
                // SIGTERM ends a worker that has not installed its handler yet.
                let ended = status.success() || status.signal() == Some(TERMINATE);
                if !worker.ending || !ended {
                    return Err(format!("a worker ended by itself: {status}").into());
                }
                *worker = start()?;
            }
            if worker.stopped_until.is_some_and(|until| Instant::now() >= until) {
                worker.signal("-CONT")?;
                worker.stopped_until = None;
            }
        }
        disturbed.servers += servers.disturb(begin.elapsed().as_secs_f64() / options.seconds as f64);
        let chosen = random.random_range(0..workers.len());
        if random.random_bool(0.6) {
            workers[chosen] = start()?;
            disturbed.kills += 1;
        } else if random.random_bool(0.2) && !workers[chosen].ending {
            // A stopped worker ends when it is continued.
            workers[chosen].signal("-TERM")?;
            workers[chosen].ending = true;
            disturbed.ended += 1;
        } else if workers[chosen].stopped_until.is_none() {
            workers[chosen].signal("-STOP")?;
            let past_the_lease = (LEASE + Duration::from_millis(random.random_range(0..600))) * window.pace;
            workers[chosen].stopped_until = Some(Instant::now() + past_the_lease);
            disturbed.stops += 1;
        }
    }
    // A disturbance that still runs comes to its end.
    disturbed.servers += servers.disturb(1.0);
    Ok(disturbed)
}
