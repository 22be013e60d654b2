//! Processes that are killed while an operation runs, on one SQLite file.
//!
//! A case starts this binary again with only the test `child`, which is a server if an environment variable
//! says so.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use idem::{OnCrash, SqliteStore};
use idem_test_servers::web::{Request, Server};

use super::{App, is_the_same, of, place, request, router, settings, until_over};

const ROLE: &str = "IDEM_TEST_OPERATIONS";
const FILE: &str = "IDEM_TEST_FILE";

/// Long enough for a request after the kill, and short enough to wait for.
const LEASE: Duration = Duration::from_secs(3);

/// The prefix that separates a child's output from that of the test harness.
const SAY: &str = "says: ";

fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{SAY}{word}").unwrap();
    out.flush().unwrap();
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(std::env::var(FILE).unwrap()).unwrap();
        let on_crash = if role.contains("in_doubt") { OnCrash::InDoubt } else { OnCrash::Rerun };
        let app = App::new();
        if role.contains("ends") {
            app.may_end.add_permits(9);
        }
        let layer = settings(store).lease(LEASE).on_crash(on_crash).build().unwrap();
        let server = Server::start(router(layer, app.clone())).await;
        say(&server.address.to_string());
        loop {
            app.has_begun().await;
            say("begun");
        }
    });
}

/// A server in a process of its own, which is killed when it is dropped.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Process {
    fn start(file: &Path, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "operations::crashes::child", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(FILE, file);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = word(&mut lines).parse().unwrap();
        Self { child, lines, address }
    }

    fn until_begun(&mut self) {
        assert_eq!(word(&mut self.lines), "begun");
    }
}

fn word(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    lines.find_map(|line| line.unwrap().strip_prefix(SAY).map(str::to_owned)).unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn look(place: &str) -> Request {
    of("a", Request::new("GET", place))
}

/// Starts an operation, kills its process, and returns another process with the operation's place.
async fn killed(file: &Path, role: &str) -> (Process, String) {
    let mut first = Process::start(file, role);
    let name = place(&request("k", "").ask(first.address).await);
    first.until_begun();
    let second = Process::start(file, &format!("{role} ends"));
    // The lease is renewed while the operation runs, and another process sees that.
    let begin = Instant::now();
    while begin.elapsed() < LEASE + LEASE / 4 {
        for request in [look(&name), request("k", "")] {
            let running = request.ask(second.address).await;
            assert_eq!((running.status, running.text("location")), (202, Some(&*name)), "{running:?}");
        }
        tokio::time::sleep(LEASE / 20).await;
    }
    drop(first);
    (second, name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_of_a_killed_process_runs_until_its_lease_is_over_and_then_once_more_when_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let (second, name) = killed(&folder.path().join("idem.db"), "rerun").await;
    let duplicate = request("k", "").ask(second.address).await;
    assert_eq!((duplicate.status, duplicate.text("location")), (202, Some(&*name)));
    let interrupted = until_over(second.address, &name).await;
    assert_eq!((interrupted.status, interrupted.problem()), (500, "handler-failed".into()));
    // A look starts nothing.
    assert_eq!(look(&name).ask(second.address).await.problem(), "handler-failed");
    assert_eq!(place(&request("k", "").ask(second.address).await), name);
    let end = until_over(second.address, &name).await;
    assert_eq!((end.status, end.text("x-recovered"), &end.body[..]), (201, Some("true"), &b"report 1"[..]));
    assert!(is_the_same(&request("k", "").ask(second.address).await, &end));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_of_a_killed_process_is_in_doubt_where_the_policy_says_so_and_never_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let (second, name) = killed(&folder.path().join("idem.db"), "in_doubt").await;
    let doubtful = until_over(second.address, &name).await;
    assert_eq!((doubtful.status, doubtful.problem()), (409, "in-doubt".into()));
    for _ in 0..2 {
        assert_eq!(request("k", "").ask(second.address).await.problem(), "in-doubt");
        assert_eq!(look(&name).ask(second.address).await.problem(), "in-doubt");
    }
}
