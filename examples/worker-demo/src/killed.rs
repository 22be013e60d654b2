//! Kills a worker between its effect and its acknowledgement, for the tests of the worker examples.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idem_test_servers::Redis;

use crate::{Broker, Failure, Ledger};

/// The process of a worker example.
#[derive(Debug)]
pub struct WorkerProcess(Child);

impl WorkerProcess {
    /// Starts a worker on this broker and store; `work` is how long an order takes.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(
        program: &str,
        broker: &str,
        store: &str,
        folder: &Path,
        work: Duration,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.arg("worker").args([broker, store]).arg(folder).arg(work.as_millis().to_string());
        Ok(Self(command.stdin(Stdio::piped()).spawn()?))
    }

    /// Sends it a signal, such as `-STOP`.
    ///
    /// # Errors
    ///
    /// The signal could not be sent.
    pub fn signal(&self, signal: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err("the worker is gone".into()) }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns once `condition` holds.
///
/// # Errors
///
/// Those of `condition`, and a timeout after 90 s.
pub async fn until(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let begin = Instant::now();
    while !condition().await? {
        if begin.elapsed() > Duration::from_secs(90) {
            return Err(format!("timed out while waiting until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Kills a worker after its effect and before it records the result, starts another, and returns the numbers of effects and
/// answers, which should be two and one.
///
/// # Errors
///
/// Those of the broker, and a timeout.
pub async fn killed_between_effect_and_record<B: Broker>(program: &str) -> Result<(usize, usize), Failure> {
    let (broker, redis, folder) = (B::start().await?, Redis::start(), tempfile::tempdir()?);
    let ledger = Ledger::new(folder.path().to_owned());
    broker.send(vec![br#"{"id":1,"pieces":1}"#.to_vec()]).await?;
    let start = |work| WorkerProcess::start(program, &broker.address(), &redis.url(), folder.path(), work);
    let first = start(Duration::from_secs(600))?;
    until("the first had the effect", async || Ok(ledger.read("effects")?.len() == 1)).await?;
    drop(first);
    let _second = start(Duration::ZERO)?;
    until("nothing is left", async || Ok(broker.waiting().await? == 0)).await?;
    Ok((ledger.read("effects")?.len(), ledger.read("answers")?.len()))
}
