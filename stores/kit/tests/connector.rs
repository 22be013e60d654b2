//! Tests of the connector of SQL stores, with servers that exist only in this file.

#![cfg(feature = "sql")]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_core::StoreError;
use idem_store_kit::group_commit::Failure;
use idem_store_kit::sql::failure::Refusal;
use idem_store_kit::sql::{Connector, Encryption, Host, Opener, Session, Source, Use};

#[derive(Clone, Default)]
struct Servers {
    /// The name of the server that is down.
    down: Arc<Mutex<&'static str>>,
    open: Arc<AtomicUsize>,
}

struct Line {
    server: String,
    usage: Use,
    open: Arc<AtomicUsize>,
}

impl Session for Line {
    fn usage(&self) -> &Use {
        &self.usage
    }

    async fn close(self, _: Duration) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Opener for Servers {
    const PRODUCT: &str = "Line";
    type Options = String;
    type Session = Line;

    async fn open(&self, server: String, host: &Host) -> Result<Line, Refusal> {
        if *self.down.lock().unwrap() == server {
            return Err(StoreError::unavailable("it is down").into());
        }
        match &*server {
            "forged" => {
                let error = StoreError::configuration("its certificate is wrong");
                return Err(Refusal { error, is_of_this_server: true });
            }
            "silent" => std::future::pending().await,
            "strict" => return Err(StoreError::configuration("no such user").into()),
            _ => {}
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Line { server, usage: Use::new(host.clone()), open: self.open.clone() })
    }

    fn address(server: &String) -> String {
        server.clone()
    }

    fn database(_: &String) -> &str {
        "shop"
    }

    fn encryption(_: &String) -> Encryption {
        Encryption::Local
    }
}

fn connector(servers: &Servers, names: &[&str]) -> Connector<Servers> {
    let source = Source::fixed(names.iter().map(|&name| name.to_owned()).collect());
    Connector::new(servers.clone(), source, Duration::from_secs(5), Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn a_connection_goes_to_the_next_server_and_is_closed_when_the_store_has_left_that() {
    let servers = Servers::default();
    let connector = connector(&servers, &["one", "two"]);
    assert_eq!(connector.place(), "one,two database shop");
    *servers.down.lock().unwrap() = "one";
    let session = connector.connect().await.unwrap();
    assert_eq!(session.server, "two");
    let session = connector.kept(session).await.expect("it is young, and on the right server");
    session.usage().host().leave();
    assert!(connector.kept(session).await.is_none());
    assert_eq!(servers.open.load(Ordering::Relaxed), 0);
    let old = connector.connect().await.unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(connector.kept(old).await.is_none());
    let mut broken = connector.connect().await.unwrap();
    broken.usage.begin();
    assert!(connector.kept(broken).await.is_none(), "a future was dropped in the middle of a statement");
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_one_servers_and_a_user_is_not() {
    for (first, is_passed_over) in [("forged", true), ("strict", false)] {
        let session = connector(&Servers::default(), &[first, "two"]).connect().await;
        assert_eq!(session.is_ok_and(|session| session.server == "two"), is_passed_over, "{first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_leaves_time_for_the_next_and_is_tried_once() {
    let connector = connector(&Servers::default(), &["silent", "two"]);
    for waits in [true, false] {
        let begin = tokio::time::Instant::now();
        assert_eq!(connector.connect().await.unwrap().server, "two");
        assert_eq!(!begin.elapsed().is_zero(), waits);
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_server_is_of_use_the_error_says_of_each_why() {
    let servers = Servers::default();
    *servers.down.lock().unwrap() = "same";
    let error = connector(&servers, &["same", "same"]).connect().await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("same: it is down; same: it is down"), "{error}");
    assert!(error.is_transient());
}

#[tokio::test(start_paused = true)]
async fn work_apart_is_done_again_on_another_connection_and_none_stays_open() {
    let (servers, tries) = (Servers::default(), AtomicUsize::new(0));
    let connector = connector(&servers, &["one"]);
    let done = connector.apart(|session: Line| {
        let number = tries.fetch_add(1, Ordering::Relaxed);
        let raced = || Failure::Raced(StoreError::unavailable("another was first"));
        async move { (if number == 0 { Err(raced()) } else { Ok(number) }, session) }
    });
    assert_eq!(done.await.unwrap(), 1);
    assert_eq!(servers.open.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_purge_ends_with_the_first_batch_that_is_not_full_and_keeps_its_count_at_an_error() {
    for (due, fails_at, expected, batches) in
        [(25, 9, Ok(25), 3), (25, 2, Ok(20), 3), (25, 0, Err(()), 1), (100, 9, Ok(35), 4)]
    {
        let (servers, count) = (Servers::default(), AtomicUsize::new(0));
        let connector = connector(&servers, &["one"]);
        let purged = connector.purge(35, 10, |session: Line, most| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let deleted = most.min(due - 10 * number);
            let refused = || Failure::Refused(StoreError::configuration("no right"));
            async move { (if number == fails_at { Err(refused()) } else { Ok((deleted, deleted)) }, session) }
        });
        assert_eq!(purged.await.map_err(drop), expected, "{due} {fails_at}");
        assert_eq!(count.into_inner(), batches, "{due} {fails_at}");
    }
}
