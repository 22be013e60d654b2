//! The program `pay` as processes that share a database and a ledger.

use std::path::PathBuf;
use std::process::Command;

use idem_test_servers::program::{Ended, Process};
use idem_test_servers::until;
use tempfile::TempDir;

/// A folder with a database and a ledger.
pub(crate) struct Shop {
    folder: TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The URL of the database.
    pub(crate) fn sqlite(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("idem.db").display())
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger.txt")
    }

    /// Starts one payment of 100 cents.
    pub(crate) fn start(&self, order: &str, options: &str) -> Process {
        Process::start(&mut self.command(&self.sqlite(), order, &format!("--amount 100 {options}")))
    }

    /// The command that makes one payment on this store.
    pub(crate) fn command(&self, store: &str, order: &str, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pay"));
        command.args(["--store", store, "--order", order]).arg("--ledger").arg(self.ledger());
        command.args(options.split_whitespace()).env("RUST_LOG", "trace");
        command
    }

    pub(crate) fn pay(&self, order: &str, options: &str) -> Ended {
        self.start(order, options).end()
    }

    /// The lines `ORDER AMOUNT ATTEMPT` of an order.
    pub(crate) fn lines(&self, order: &str) -> Vec<String> {
        let ledger = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let prefix = format!("{order} ");
        ledger.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
    }

    /// Returns once the ledger has a line for the order.
    pub(crate) fn until_charged(&self, order: &str) {
        until("the order is charged", || !self.lines(order).is_empty());
    }
}
