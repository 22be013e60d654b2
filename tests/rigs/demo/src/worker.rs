//! A worker's process: its arguments, its run, and its end.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use idem_test_servers::program::Process;
use lambda_runtime::LambdaEvent;
use rig_stores::Choice;
use tower::ServiceExt as _;

use crate::{Broker, Failure, Kind, Order, Shop};

/// The lease of an order, in milliseconds.
pub(crate) const LEASE_MS: u64 = 1_500;

/// The number of SIGTERM.
const TERMINATE: i32 = 15;

/// How long a worker waits for a store that is down.
const PATIENCE: Duration = Duration::from_secs(60);

/// The arguments of a worker.
#[derive(Clone, Debug, Args)]
pub(crate) struct Worker {
    pub(crate) address: String,
    pub(crate) store: String,
    pub(crate) folder: PathBuf,
    pub(crate) work_ms: u64,
    /// The lease of an order, in milliseconds.
    #[arg(long, default_value_t = LEASE_MS)]
    pub(crate) lease_ms: u64,
}

impl Worker {
    /// Opens the store.
    pub(crate) async fn shop(&self) -> Result<Shop, Failure> {
        let store = self.store.parse::<Choice>()?.open().await?;
        let (lease, work) = (Duration::from_millis(self.lease_ms), Duration::from_millis(self.work_ms));
        Ok(Shop::new(store, lease, self.folder.clone(), work))
    }

    /// As `shop`, but waits for a store that is down. In production a supervisor would restart the worker
    /// until the store is up.
    async fn patient_shop(&self) -> Result<Shop, Failure> {
        let begin = Instant::now();
        loop {
            match self.shop().await {
                Err(_) if begin.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(200)).await,
                opened => return opened,
            }
        }
    }

    /// Starts the worker as a process of the program at this path. The process ends when the pipe to it is
    /// closed.
    pub(crate) fn start(&self, program: &Path, broker: Kind) -> Process {
        let mut command = Command::new(program);
        command.args(["--broker", &broker.name(), "worker", &self.address, &self.store]);
        command.arg(&self.folder).arg(self.work_ms.to_string());
        Process::spawn(command.stdin(Stdio::piped()))
    }
}

/// Ends this process when its parent ends. The parent never writes to this process's standard input, so the
/// read returns only when the parent has ended.
fn end_with_the_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
}

/// Handles messages until SIGTERM, or until the parent process is gone.
pub(crate) async fn serve<B: Broker>(worker: &Worker) -> Result<(), Failure> {
    end_with_the_parent();
    let shutdown = idem::terminated();
    B::work(&worker.address, &worker.patient_shop().await?, shutdown).await
}

/// Runs as a function of AWS Lambda, until the parent process is gone.
pub(crate) async fn function(worker: &Worker) -> Result<(), Failure> {
    end_with_the_parent();
    let ship = worker.shop().await?.service();
    let function = ship.map_request(|event: LambdaEvent<Order>| event.payload);
    // The runtime wants the error as a text.
    lambda_runtime::run(function.map_err(|error| error.to_string())).await
}

/// Sends SIGTERM to a worker, and returns whether it ended without an error.
pub(crate) async fn end(worker: &mut Process) -> bool {
    worker.signal("-TERM");
    for _ in 0..3_000 {
        if let Some(status) = worker.status() {
            // A worker that has just started has no handler for SIGTERM yet, so the signal kills it.
            return status.success() || status.signal() == Some(TERMINATE);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}
