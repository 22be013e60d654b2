//! Cases of the example on each framework, as processes that share a store: duplicates, a server killed during a handler, a
//! server that gets the signal to end.

use std::any::Any;
use std::time::Duration;

use futures_util::future::join_all;
use idem_test_servers::web::{Answer, Request};
use idem_test_servers::{MariaDb, PgBouncer, Postgres, Redis};

use crate::Payments;

/// The framework, after which `main.rs` names this module.
fn framework() -> &'static str {
    module_path!().rsplit("::").next().unwrap()
}

/// A store that several servers share, and its server or folder, which ends with the test.
struct Shared {
    url: String,
    _owner: Box<dyn Any>,
}

fn sqlite() -> Shared {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    Shared { url, _owner: Box::new(folder) }
}

/// One store of every kind, or on actix-web one: its adapter knows no store.
fn stores() -> Vec<Shared> {
    if framework() == "actix" {
        return vec![sqlite()];
    }
    let (redis, postgres, mariadb) = (Redis::start(), Postgres::shared(), MariaDb::shared());
    let behind = Postgres::shared();
    let pooler = PgBouncer::start(&behind, "transaction", "");
    vec![
        sqlite(),
        Shared { url: redis.url(), _owner: Box::new(redis) },
        Shared { url: postgres.url(), _owner: Box::new(postgres) },
        Shared { url: mariadb.url(), _owner: Box::new(mariadb) },
        Shared { url: pooler.url(), _owner: Box::new((pooler, behind)) },
    ]
}

fn slow(sleep_ms: u64) -> Request {
    let body = format!(r#"{{"amount":1999,"currency":"EUR","sleep_ms":{sleep_ms}}}"#);
    Request::post("/payments", "k").json(body)
}

#[tokio::test]
async fn of_200_duplicates_over_two_servers_one_is_executed_and_all_others_are_replays_or_refused_or_wait() {
    for (options, is_refused) in [("", true), ("--wait-ms 20000", false)] {
        for store in stores() {
            let servers = [(); 2].map(|()| Payments::start(framework(), &store.url, options));
            let request = slow(200);
            let answers: Vec<Answer> =
                join_all((0..200).map(|number| servers[number % 2].ask(&request))).await;
            let (paid, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
            assert_eq!(paid.iter().filter(|answer| !answer.is_replay()).count(), 1);
            assert!(paid.iter().all(|answer| answer.lasting() == paid[0].lasting()));
            assert!(refused.iter().all(|answer| is_refused && answer.problem() == "in-flight"));
            for server in &servers {
                let replay = server.ask(&request).await;
                assert_eq!((replay.is_replay(), replay.lasting()), (true, paid[0].lasting()));
            }
            assert_eq!(servers[0].executions().await + servers[1].executions().await, 1);
        }
    }
}

#[tokio::test]
async fn a_server_killed_in_mid_handler_keeps_its_key_until_the_lease_ends_and_then_one_takes_over() {
    // Who takes over on which store is a case of the rig `pay`.
    let store = sqlite();
    let options = "--lease-ms 6000";
    let mut victim = Payments::start(framework(), &store.url, options);
    let heir = Payments::start(framework(), &store.url, options);
    // Both servers get the same payment. The first is killed during its sleep.
    let request = slow(5_000);
    let _client = request.send(victim.address()).await;
    victim.until_executed().await;
    victim.0.kill();

    let refused = heir.ask(&request).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    assert!((1..=2).contains(&refused.retry_after()), "{refused:?}");
    assert_eq!(heir.executions().await, 0);
    // The sleep is the subject of this test: after a lease one takes over.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let answers = join_all((0..10).map(|_| heir.ask(&request))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:#?}");
    assert!(heir.ask(&request).await.is_replay());
    assert_eq!(heir.executions().await, 1);
    victim.0.restart();
    assert!(victim.ask(&request).await.is_replay());
    assert_eq!(victim.executions().await, 0);
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_finishes_a_payment_whose_client_is_gone() {
    let store = sqlite();
    let mut server = Payments::start(framework(), &store.url, "");
    let client = slow(1_000).send(server.address()).await;
    server.until_executed().await;
    drop(client);
    server.0.stop("-TERM");
    server.0.restart();
    assert!(server.ask(&slow(1_000)).await.is_replay());
    assert_eq!(server.executions().await, 0);
}
