//! The worker processes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use idem_test_servers::program::Process;
use rand::RngExt as _;

use crate::bank::Bank;
use crate::{Arguments, Failure, is_over};

/// Starts workers.
pub(crate) struct Crew<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) url: &'a str,
    pub(crate) schema: &'a str,
    /// The folder of the ledger.
    pub(crate) ledger: &'a Path,
}

impl Crew<'_> {
    fn start(&self) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--url", self.url, "--worker-in", self.schema]).arg("--ledger").arg(self.ledger);
        command.args(["--transfers", &self.arguments.transfers.to_string()]);
        command.args(["--driver", &self.arguments.driver.name()]);
        Ok(Process::spawn(&mut command))
    }

    /// Starts and kills workers until every transfer is made and published. Returns how many were killed.
    pub(crate) async fn disturb(&self, bank: &Bank) -> Result<usize, Failure> {
        let mut workers = (0..self.arguments.workers).map(|_| self.start()).collect::<Result<Vec<_>, _>>()?;
        let mut killed = 0;
        while !is_over(bank, self.arguments.transfers).await? {
            tokio::time::sleep(Duration::from_millis(self.arguments.kill_every)).await;
            let victim = rand::rng().random_range(0..workers.len());
            // The worker that was there is killed.
            workers[victim] = self.start()?;
            killed += 1;
        }
        for mut worker in workers {
            while worker.status().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(killed)
    }
}
