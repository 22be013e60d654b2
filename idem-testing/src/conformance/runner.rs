//! Runs a check in its own thread and runtime, with a time limit.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::Check;
use super::history::History;
use super::subject::{Clock, Subject};
use super::trial::{Broken, Checked, Trial};

/// How long a check may take on a slow machine and a slow store.
const LIMIT: Duration = Duration::from_secs(600);

pub(super) fn run<F, S>(check: Check, factory: F, history: &Arc<History>) -> Checked
where
    F: FnOnce() -> S + Send + 'static,
    S: Future<Output = Subject>,
{
    let (sender, receiver) = channel();
    let recorder = history.clone();
    let worker = thread::spawn(move || {
        // After the time limit, nobody waits for the result.
        let _ = sender.send(work(check, factory, &recorder));
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => Err(Broken(format!("it is not over after {LIMIT:?}"))),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => Err(Broken("it ended without a word".into())),
        },
    }
}

fn work<S>(check: Check, factory: impl FnOnce() -> S, history: &Arc<History>) -> Checked
where
    S: Future<Output = Subject>,
{
    // Races need several threads. With several threads, tokio cannot pause its clock.
    let races = matches!(check.theme, "races" | "duels");
    let runtime = runtime(races).map_err(|error| Broken(format!("no runtime: {error}")))?;
    let (found, _kept) = runtime.block_on(async {
        let mut subject = factory().await;
        if races {
            subject.profile = subject.profile.with_running_clock();
        } else if subject.profile.clock == Clock::Tokio {
            tokio::time::pause();
        }
        let found = match Trial::new(&subject, history) {
            Ok(trial) => (check.run)(&trial).await,
            Err(broken) => Err(broken),
        };
        (found, std::mem::take(&mut subject.kept))
    });
    // The runtime ends before the subject's guards are dropped, because the store's tasks may still use the
    // guards.
    runtime.shutdown_timeout(Duration::from_secs(5));
    found
}

fn runtime(races: bool) -> std::io::Result<Runtime> {
    if races {
        Builder::new_multi_thread().worker_threads(4).enable_all().build()
    } else {
        Builder::new_current_thread().enable_all().build()
    }
}
