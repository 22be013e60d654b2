//! Runs the command `idem`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use idem::protocol::State;
use idem::{OnCrash, RecordKey, SqliteStore, Store};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::records::*;

pub(crate) const SCOPE: &str = "shop.charge";

/// The command, for one store.
pub(crate) struct Idem {
    pub(crate) store: String,
    environment: Vec<(&'static str, String)>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The JSON values that the command printed, one per line.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}")))
            .collect()
    }

    /// The only JSON value that the command printed.
    pub(crate) fn one(&self) -> Value {
        let mut all = self.json();
        assert_eq!(all.len(), 1, "{self:?}");
        all.remove(0)
    }

    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

impl Idem {
    pub(crate) fn new(store: impl Into<String>) -> Self {
        Self { store: store.into(), environment: Vec::new() }
    }

    pub(crate) fn with_environment(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
        command.args(arguments).env_remove("IDEM_STORE").env("IDEM_STORE", &self.store);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the command without a terminal.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.command(arguments).output().unwrap())
    }

    /// Runs the command with this text on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        use std::io::Write as _;
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // Writing fails if the command has ended without reading its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ended::of(&child.wait_with_output().unwrap())
    }

    /// Runs the command on a terminal on which a person types this line. `before` happens between the
    /// question and the answer.
    pub(crate) async fn run_on_terminal(
        &self,
        arguments: &[&str],
        typed: &str,
        before: impl Future<Output = ()>,
    ) -> Ended {
        use std::io::{Read as _, Write as _};
        let words: Vec<String> = std::iter::once(env!("CARGO_BIN_EXE_idem"))
            .chain(arguments.iter().copied())
            .map(|word| format!("'{word}'"))
            .collect();
        let mut command = Command::new("script");
        command.args(["-qec", &words.join(" "), "/dev/null"]).env("IDEM_STORE", &self.store);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (mut out, mut byte) = (Vec::new(), [0]);
        while !out.ends_with(b"continue: ") && stdout.read(&mut byte).unwrap() == 1 {
            out.push(byte[0]);
        }
        before.await;
        // Writing fails if the command has ended without asking.
        let _ = writeln!(stdin, "{typed}");
        // Standard input stays open until the command has ended, because closing it would close the terminal.
        stdout.read_to_end(&mut out).unwrap();
        let ended = Ended::of(&child.wait_with_output().unwrap());
        drop(stdin);
        Ended { out: String::from_utf8_lossy(&out).into_owned(), ..ended }
    }

    /// The digests of the listed records.
    pub(crate) fn digests(&self, arguments: &[&str]) -> Vec<String> {
        let mut all = vec!["--json", "list"];
        all.extend(arguments);
        let listed = self.run(&all);
        let mut digests: Vec<String> =
            listed.json().iter().map(|record| record["digest"].as_str().unwrap().to_owned()).collect();
        digests.sort_unstable();
        digests
    }
}

/// A SQLite file with a store on it.
pub(crate) struct Shop {
    pub(crate) store: SqliteStore,
    pub(crate) idem: Idem,
    folder: TempDir,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("idem.db");
        let store = SqliteStore::open(&file).unwrap();
        Self { store, idem: Idem::new(format!("sqlite:{}", file.display())), folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the record of this key unreadable.
    pub(crate) fn eat(&self, key: &str) {
        let file = rusqlite::Connection::open(self.folder().join("idem.db")).unwrap();
        let sql = "UPDATE idem_records SET state = 'eaten' WHERE key = ?1";
        assert_eq!(file.execute(sql, [key]).unwrap(), 1);
    }
}

pub(crate) fn key(text: &str) -> RecordKey {
    key_of(SCOPE, text)
}

pub(crate) fn digests(keys: &[&RecordKey]) -> Vec<String> {
    let mut digests: Vec<String> = keys.iter().map(|key| key.digest().to_string()).collect();
    digests.sort_unstable();
    digests
}

/// Claims a key, and waits until the short lease has expired. If `ttl` is short, too, the record has expired
/// by then.
pub(crate) async fn lapse<S: Store>(store: &S, key: &RecordKey, on_crash: OnCrash, ttl: Duration) {
    let lease = Duration::from_millis(1);
    store.claim(key, &claim().with_lease(lease).with_ttl(ttl).with_on_crash(on_crash)).await.unwrap();
    tokio::time::sleep(lease * 2 + Duration::from_millis(5)).await;
}

pub(crate) async fn state_of<S: Store>(store: &S, key: &RecordKey) -> Option<State> {
    store.get(key).await.unwrap().map(|record| record.state)
}
