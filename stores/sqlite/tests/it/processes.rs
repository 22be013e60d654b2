//! Tests of several processes on one file, and of processes that are killed.
//!
//! A test starts this binary again with only the test `child`. With an environment variable, that test acts
//! as a child process.

use crate::support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idem_runtime::Store;
use idem_runtime::protocol::ClaimAnswer;
use idem_sqlite::SqliteStore;

use support::*;

const ROLE: &str = "IDEM_TEST_ROLE";
const FILE: &str = "IDEM_TEST_FILE";

/// The prefix that separates a child's output from that of the test harness.
const SAY: &str = "says: ";

fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{SAY}{word}").unwrap();
    out.flush().unwrap();
}

fn start(role: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(FILE, path).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The words that a child prints, until it ends.
fn words(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix(SAY).map(str::to_owned))
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = std::env::var_os(FILE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let path = Path::new(&path);
    match role.as_str() {
        "race" => runtime.block_on(race(path)),
        "fill" => runtime.block_on(fill(path)),
        other => panic!("{other}"),
    }
}

/// SQLite gives its lock to any of the waiting processes, so on a busy machine one process may wait long.
fn patient(path: &Path) -> SqliteStore {
    SqliteStore::builder(path).busy_timeout(Duration::from_secs(60)).open().unwrap()
}

/// Waits for a line, then claims and completes 50 keys, which are the same in every process.
async fn race(path: &Path) {
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let store = patient(path);
    for i in 0..50 {
        let request = claim_request();
        match store.claim(&key(&format!("{i}")), &request).await.unwrap() {
            ClaimAnswer::Granted(grant) => {
                say(&format!("granted {i}"));
                let id = std::process::id().to_be_bytes();
                finish(&store, &key(&format!("{i}")), request.owner, grant.fence, &id).await;
            }
            ClaimAnswer::Busy { .. } | ClaimAnswer::Replay(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Completes new keys, and prints each after its acknowledgement.
async fn fill(path: &Path) {
    let store = patient(path);
    for i in 0.. {
        let name = format!("{}/{i}", std::process::id());
        complete(&store, &key(&name), &[b'x'; 10_000]).await;
        say(&name);
    }
}

#[test]
fn twenty_processes_that_open_a_new_file_at_once_all_succeed_and_share_it() {
    for _ in 0..3 {
        let folder = folder();
        let path = folder.path().join("idem.db");
        let mut children: Vec<_> = (0..20)
            .map(|_| {
                let mut child = start("race", &path);
                let mut words = words(&mut child);
                assert_eq!(words.next().as_deref(), Some("ready"));
                (child, words)
            })
            .collect();
        for (child, _) in &mut children {
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        }
        let mut said = Vec::new();
        for (mut child, words) in children {
            said.extend(words);
            assert!(child.wait().unwrap().success());
        }
        said.sort();
        let mut expected: Vec<_> = (0..50).map(|i| format!("granted {i}")).collect();
        expected.sort();
        assert_eq!(said, expected);
        assert_eq!(integrity(&path), "ok");
    }
}

#[tokio::test]
async fn a_process_killed_while_it_creates_the_file_leaves_one_that_opens() {
    for moment in 0..40 {
        let folder = folder();
        let path = folder.path().join("idem.db");
        let mut child = start("race", &path);
        assert_eq!(words(&mut child).next().as_deref(), Some("ready"));
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        std::thread::sleep(Duration::from_micros(moment * 200));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = SqliteStore::open(&path).unwrap();
        complete(&store, &key("a"), b"x").await;
        assert_eq!(integrity(&path), "ok");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        let mut children: Vec<_> = (0..3).map(|_| start("fill", &path)).collect();
        let words: Vec<_> = children.iter_mut().map(words).collect();
        for (child, mut words) in children.iter_mut().zip(words) {
            // The child is killed after it has completed some keys, at any point of its work.
            acknowledged.extend(words.by_ref().take(50));
            child.kill().unwrap();
            child.wait().unwrap();
            acknowledged.extend(words);
        }
    }
    assert!(acknowledged.len() >= 750, "{}", acknowledged.len());
    let store = SqliteStore::open(&path).unwrap();
    for name in &acknowledged {
        assert_eq!(replayed(&store, &key(name)).await, [b'x'; 10_000]);
    }
    drop(store);
    assert_eq!(integrity(&path), "ok");
}
