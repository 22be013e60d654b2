//! Processes that are killed while an operation runs, on one SQLite file.
//!
//! A case starts this binary again with only the test `child`, which is a server if an environment variable
//! says so.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use idem::{OnCrash, SqliteStore};
use idem_test_servers::web::{Request, Server};
use idem_test_servers::{TestChild, say};

use super::{App, is_the_same, of, place, request, router, settings, until_over};

const ROLE: &str = "IDEM_TEST_OPERATIONS";
const FILE: &str = "IDEM_TEST_FILE";

/// Long enough for a request after the kill, also of a process that stands still for a moment.
const LEASE: Duration = Duration::from_secs(5);

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
    child: TestChild,
    address: SocketAddr,
}

impl Process {
    fn start(file: &Path, role: &str) -> Self {
        let variables = [(ROLE, role), (FILE, file.to_str().unwrap())];
        let mut child = TestChild::start("operations::crashes::child", variables);
        let address = child.word().parse().unwrap();
        Self { child, address }
    }

    fn until_begun(&mut self) {
        assert_eq!(self.child.word(), "begun");
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
