//! Processes that are killed before, during and after the commit.
//!
//! A case starts this binary again with only the test `child`. That test runs a server if a certain
//! environment variable is set.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use idem_test_servers::web::Answer;
use idem_test_servers::{DatabaseServer, Engine as _, MariaDbEngine, PostgresEngine, TestChild, say, until};

use crate::bank::{App, Bank, LIMIT, Then, request, serve};
use crate::databases::Database;

const ROLE: &str = "IDEM_TEST_ROLE";
const URL: &str = "IDEM_TEST_URL";

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (database, then) = role.split_once(' ').unwrap();
    let then = (then == "hangs").then_some(Then::Hangs);
    match database {
        PostgresEngine::WORD => runtime.block_on(be_a_server::<PostgresEngine>(then)),
        _ => runtime.block_on(be_a_server::<MariaDbEngine>(then)),
    }
}

async fn be_a_server<D: Database>(then: Option<Then>) {
    let pool = D::pool(&std::env::var(URL).unwrap(), 2).await;
    let app = App::default();
    app.then(then);
    let store = D::store(&pool, LIMIT).await;
    let server = serve::<D>(store, pool, app.clone(), |builder| builder.wait(Duration::ZERO)).await;
    say(&server.address.to_string());
    loop {
        app.has_written.notified().await;
        say("written");
    }
}

/// A server in a separate process, which is killed when this value is dropped.
struct Process {
    child: TestChild,
    address: SocketAddr,
}

impl Process {
    fn start<D: Database>(database: &DatabaseServer<D>, then: &str) -> Self {
        let (role, url) = (format!("{} {then}", D::WORD), database.url());
        let mut child = TestChild::start("crashes::child", [(ROLE, &*role), (URL, &*url)]);
        let address = child.word().parse().unwrap();
        Self { child, address }
    }

    fn until_written(&mut self) {
        assert_eq!(self.child.word(), "written");
    }
}

/// Repeats the request until its key is free, and returns the answer. The key becomes free when the database
/// server notices that the killed process is gone. The time limit is shorter than a lease, so the case fails
/// if the key stays claimed until the end of a lease.
async fn answer_when_free(address: SocketAddr) -> Answer {
    let begin = Instant::now();
    loop {
        let answer = request("k").ask(address).await;
        if answer.status != 409 {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "the key is not free");
    }
}

pub(crate) async fn a_killed_process_leaves_nothing_before_its_commit_and_a_replay_after_it<D: Database>() {
    let bank = Bank::<D>::open().await;
    let mut first = Process::start(&bank.database, "hangs");
    let connection = request("k").send(first.address).await;
    first.until_written();
    let second = Process::start(&bank.database, "answers");
    drop(first);
    let answer = answer_when_free(second.address).await;
    assert_eq!((answer.status, answer.is_replay()), (201, false), "{answer:?}");
    assert_eq!(bank.committed(), (1, 1));
    drop(second);
    let third = Process::start(&bank.database, "answers");
    assert!(request("k").ask(third.address).await.is_replay());
    assert_eq!(bank.committed(), (1, 1));
    drop(connection);
}

pub(crate) async fn a_process_killed_at_its_commit_leaves_one_effect<D: Database>() {
    let database = DatabaseServer::<D>::start();
    let url = database.url();
    let bank = Bank::on(database, &url, 2, |builder| builder).await;
    let mut first = Process::start(&bank.database, "answers");
    let second = Process::start(&bank.database, "answers");
    // Each process makes its one-time writes now. Later, `hold_commits` would make these writes wait.
    for (process, key) in [(&first, "first"), (&second, "second")] {
        assert_eq!(request(key).ask(process.address).await.status, 201);
    }
    first.until_written();
    let held = D::hold_commits(&bank.database).await;
    let connection = request("k").send(first.address).await;
    first.until_written();
    tokio::task::block_in_place(|| {
        until("a commit waits", || bank.database.sql(D::COMMITS_THAT_WAIT) == "1");
    });
    drop(first);
    // The first process is gone, but the database server still executes its commit.
    let refused = request("k").ask(second.address).await;
    assert_eq!(refused.problem(), "in-flight");
    drop(held);
    let answer = answer_when_free(second.address).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(bank.committed(), (3, 3));
    assert!(request("k").ask(second.address).await.is_replay());
    drop(connection);
}
