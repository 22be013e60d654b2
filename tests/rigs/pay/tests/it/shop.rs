//! The program `pay` as processes that share a database and a ledger.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use idem_test_servers::program::{Ended, Process};
use tempfile::TempDir;

/// A folder with a database and a ledger.
pub(crate) struct Shop {
    pub(crate) folder: TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("idem.db")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger.txt")
    }

    /// The command for one payment of 100 cents.
    pub(crate) fn command(&self, order: &str, options: &str) -> Command {
        self.command_for(order, "100", options)
    }

    pub(crate) fn command_for(&self, order: &str, amount: &str, options: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pay"));
        command.arg("--db").arg(self.db()).arg("--ledger").arg(self.ledger());
        command.args(["--order", order, "--amount", amount]).args(options.split_whitespace());
        command.env("RUST_LOG", "trace");
        command
    }

    pub(crate) fn start(&self, order: &str, options: &str) -> Process {
        Process::start(&mut self.command(order, options))
    }

    pub(crate) fn pay(&self, order: &str, options: &str) -> Ended {
        self.start(order, options).end()
    }

    pub(crate) fn pay_amount(&self, order: &str, amount: &str, options: &str) -> Ended {
        Process::start(&mut self.command_for(order, amount, options)).end()
    }

    /// The lines `ORDER AMOUNT ATTEMPT` of an order.
    pub(crate) fn lines(&self, order: &str) -> Vec<String> {
        let ledger = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let prefix = format!("{order} ");
        ledger.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
    }

    /// Returns once the ledger has this many lines for the order.
    pub(crate) fn until_charged(&self, order: &str, lines: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.lines(order).len() < lines {
            assert!(Instant::now() < deadline, "{order} was not charged {lines} times in 60 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn integrity(&self) -> String {
        let connection = rusqlite::Connection::open(self.db()).unwrap();
        connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap()
    }
}
