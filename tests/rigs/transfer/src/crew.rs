//! The worker processes, and their output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::RngExt as _;

use crate::bank::Bank;
use crate::{Arguments, Failure, is_over};

/// How often the workers printed each word.
#[derive(Default)]
pub(crate) struct Words(Mutex<BTreeMap<String, usize>>);

impl Words {
    fn heard(&self, word: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(word).or_default() += 1;
    }

    pub(crate) fn count(&self, word: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(word).copied().unwrap_or_default()
    }
}

/// Starts workers and reads their output.
pub(crate) struct Crew<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) url: &'a str,
    pub(crate) schema: &'a str,
    pub(crate) broker: String,
    pub(crate) words: Arc<Words>,
}

impl Crew<'_> {
    fn spawn(&self) -> Result<Child, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--url", self.url, "--worker-in", self.schema, "--broker", &self.broker])
            .args(["--transfers", &self.arguments.transfers.to_string()])
            .args(["--driver", self.arguments.driver.name()])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let said = child.stdout.take().ok_or("the worker has no output")?;
        let words = self.words.clone();
        std::thread::spawn(move || {
            for word in BufReader::new(said).lines().map_while(Result::ok) {
                words.heard(word);
            }
        });
        Ok(child)
    }

    /// Starts and kills workers until every transfer is made and published. Returns how many were killed.
    pub(crate) async fn disturb(&self, bank: &Bank) -> Result<usize, Failure> {
        let mut workers = Vec::new();
        for _ in 0..self.arguments.workers {
            workers.push(self.spawn()?);
        }
        let mut killed = 0;
        while !is_over(bank, self.arguments.transfers).await? {
            tokio::time::sleep(Duration::from_millis(self.arguments.kill_every)).await;
            let victim = rand::rng().random_range(0..workers.len());
            workers[victim].kill()?;
            workers[victim].wait()?;
            workers[victim] = self.spawn()?;
            killed += 1;
        }
        for mut worker in workers {
            while worker.try_wait()?.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(killed)
    }
}
