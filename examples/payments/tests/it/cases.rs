//! Cases of the example on each framework. Each server is a process. The cases are duplicates, a server
//! killed during a handler, a server that gets the signal to end, and each route and member.

use std::any::Any;
use std::time::Duration;

use futures_util::future::join_all;
use idem_test_servers::web::{Answer, Request};
use idem_test_servers::{Postgres, Redis};

use crate::{PAYMENT, Payments};

/// The framework's name. `main.rs` includes this file once for each framework, as a module with that name.
fn framework() -> &'static str {
    module_path!().rsplit("::").next().unwrap()
}

/// The URL of a store that several servers share. The second value keeps the store's server or folder until
/// the end of the test.
type Shared = (String, Box<dyn Any>);

fn sqlite() -> Shared {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    (url, Box::new(folder))
}

/// Stores of three kinds. For actix-web one store is enough, because its adapter does not depend on the
/// store.
fn stores() -> Vec<Shared> {
    if framework() == "actix" {
        return vec![sqlite()];
    }
    let (redis, postgres) = (Redis::start(), Postgres::shared());
    vec![sqlite(), (redis.url(), Box::new(redis)), (postgres.url(), Box::new(postgres))]
}

fn slow(sleep_ms: u64) -> Request {
    let body = format!(r#"{{"amount":1999,"currency":"EUR","sleep_ms":{sleep_ms}}}"#);
    Request::post("/payments", "k").json(body)
}

#[tokio::test]
async fn of_200_duplicates_over_two_servers_one_is_executed_and_all_others_are_replays_or_refused_or_wait() {
    for (options, is_refused) in [("", true), ("--wait-ms 20000", false)] {
        for (store, _owner) in stores() {
            let servers = [(); 2].map(|()| Payments::start(framework(), &store, options));
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
    // The program `tests/rigs/pay` tests takeovers on the other stores.
    let (store, _folder) = sqlite();
    let options = "--lease-ms 6000";
    let mut victim = Payments::start(framework(), &store, options);
    let heir = Payments::start(framework(), &store, options);
    // Both servers get the same payment. The first server is killed during the payment's sleep.
    let request = slow(5_000);
    let _client = request.send(victim.address()).await;
    victim.until_executed().await;
    victim.0.kill();

    let refused = heir.ask(&request).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    assert!((1..=2).contains(&refused.retry_after()), "{refused:?}");
    assert_eq!(heir.executions().await, 0);
    // The lease ends during this sleep. Then exactly one of the ten requests takes over.
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
    let (store, _folder) = sqlite();
    let mut server = Payments::start(framework(), &store, "");
    let client = slow(1_000).send(server.address()).await;
    server.until_executed().await;
    drop(client);
    server.0.stop("-TERM");
    server.0.restart();
    assert!(server.ask(&slow(1_000)).await.is_replay());
    assert_eq!(server.executions().await, 0);
}

#[tokio::test]
async fn each_route_and_each_member_does_what_the_example_says() {
    let server = Payments::start(framework(), "memory", "--max-body 2000 --max-response 1000");
    let patch = Request::new("PATCH", "/payments/7").header("Idempotency-Key", "p").json(PAYMENT);
    assert_eq!(server.ask(&patch).await.status, 200);
    assert!(server.ask(&patch).await.is_replay());
    let refund = server.ask(&Request::post("/refunds", "r").json(PAYMENT)).await;
    assert_eq!((refund.status, refund.all("link").len()), (201, 2));
    let echo = Request::post("/echo", "e").header("Content-Type", "x/y; z=1").body(b"\0\xff");
    for replay in [false, true] {
        let echoed = server.ask(&echo).await;
        assert_eq!((&echoed.body[..], echoed.text("content-type")), (&b"\0\xff"[..], Some("x/y; z=1")));
        assert_eq!(echoed.is_replay(), replay);
    }
    let counts = server.ask(&Request::new("GET", "/executions")).await.json();
    assert_eq!(
        counts["executions"],
        serde_json::json!({"PATCH /payments/{id}": 1, "POST /echo": 1, "POST /refunds": 1})
    );
    assert_eq!(server.ask(&Request::new("DELETE", "/executions")).await.status, 204);

    let pay = async |member: &str| {
        let body = format!(r#"{{"amount":1,"currency":"EUR",{member}}}"#);
        server.ask(&Request::post("/payments", member.split('"').nth(1).unwrap()).json(body)).await
    };
    assert_eq!(pay(r#""status":402"#).await.status, 402);
    assert!(pay(r#""status":402"#).await.is_replay());
    assert_eq!(pay(r#""panic":true"#).await.problem(), "handler-failed");
    assert_eq!(pay(r#""body_bytes":1001"#).await.body.len(), 1001);
    assert_eq!(pay(r#""body_bytes":1001"#).await.problem(), "response-not-stored");
    assert!(pay(r#""stream_ms":100"#).await.body.starts_with(b"data: {"));
    assert_eq!(pay(r#""stream_ms":100"#).await.problem(), "response-not-stored");
    assert!(pay(r#""set_cookie":true"#).await.text("set-cookie").is_some());
    assert_eq!(server.executions().await, 5);
    assert_eq!(server.ask(&Request::post("/echo", "b").body(vec![0; 2001])).await.status, 413);
    assert_eq!(server.ask(&Request::new("POST", "/payments").json(PAYMENT)).await.problem(), "key-missing");
}
