//! Runs the quickstart's `pay` as processes.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The example as cargo built it beside this test.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --examples` first", path.display());
    path
}

/// A folder with a database and a ledger.
pub struct Shop {
    pub folder: TempDir,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The one line on stdout.
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn outcome(&self) -> String {
        self.json()["outcome"].as_str().unwrap().to_owned()
    }

    pub fn receipt(&self) -> String {
        self.json()["receipt"].as_str().unwrap_or_else(|| panic!("no receipt: {self:?}")).to_owned()
    }
}

/// A process that does not outlive the test.
pub struct Process(Option<Child>);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        ))
    }

    pub fn end(mut self) -> Ended {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `kill SIGNAL`, with `-KILL`, `-STOP` or `-CONT`.
    pub fn signal(&self, signal: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Shop {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn db(&self) -> PathBuf {
        self.folder.path().join("idem.db")
    }

    pub fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger.txt")
    }

    /// The command for one payment of 100 cents.
    pub fn command(&self, order: &str, options: &str) -> Command {
        self.command_for(order, "100", options)
    }

    pub fn command_for(&self, order: &str, amount: &str, options: &str) -> Command {
        let mut command = Command::new(example("quickstart"));
        command.arg("pay").arg("--db").arg(self.db()).arg("--ledger").arg(self.ledger());
        command.args(["--order", order, "--amount", amount]).args(options.split_whitespace());
        command.env("RUST_LOG", "trace");
        command
    }

    pub fn start(&self, order: &str, options: &str) -> Process {
        Process::start(&mut self.command(order, options))
    }

    pub fn pay(&self, order: &str, options: &str) -> Ended {
        self.start(order, options).end()
    }

    pub fn pay_amount(&self, order: &str, amount: &str, options: &str) -> Ended {
        Process::start(&mut self.command_for(order, amount, options)).end()
    }

    /// The lines `ORDER AMOUNT ATTEMPT` of an order.
    pub fn lines(&self, order: &str) -> Vec<String> {
        let ledger = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let prefix = format!("{order} ");
        ledger.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
    }

    /// Returns once the ledger has this many lines for the order.
    pub fn until_charged(&self, order: &str, lines: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.lines(order).len() < lines {
            assert!(Instant::now() < deadline, "{order} was not charged {lines} times in 20 s");
            std::thread::yield_now();
        }
    }

    pub fn integrity(&self) -> String {
        let connection = rusqlite::Connection::open(self.db()).unwrap();
        connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap()
    }
}
