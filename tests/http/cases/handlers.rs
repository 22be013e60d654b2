//! Handlers that continue without their client, and duplicates that wait for them.

use std::time::Duration;

use idem_test_servers::web::{Answer, Request};

use super::Slow;

#[tokio::test]
async fn a_handler_finishes_without_its_client_whose_retry_is_answered_when_it_is_done() {
    let slow = Slow::start(|builder| builder).await;
    drop(slow.begin("k").await);
    let mut retry = Request::post("/pay", "k").send(slow.server.address).await;
    let refused = tokio::time::timeout(Duration::from_millis(300), Answer::read(&mut retry)).await;
    assert!(refused.is_err(), "it waits: {:?}", refused.map(|answer| answer.status));
    let other = slow.server.ask(Request::post("/pay", "k").body("other")).await;
    assert_eq!(other.problem(), "key-reused", "it need not wait to be refused");
    slow.gate.may_end.add_permits(1);
    let retry = Answer::read(&mut retry).await;
    assert_eq!((&retry.body[..], retry.is_replay(), slow.gate.runs.count()), (&b"receipt 1"[..], true, 1));
}

#[tokio::test]
async fn no_more_handlers_run_than_may_though_their_clients_are_gone_and_a_refused_key_is_free() {
    let slow = Slow::start(|builder| builder.max_running(3)).await;
    for key in ["a", "b", "c"] {
        drop(slow.begin(key).await);
    }
    for key in ["d", "e"] {
        let refused = slow.server.ask(Request::post("/pay", key)).await;
        assert_eq!((refused.status, refused.problem()), (503, "too-many-running".into()));
        assert!(refused.retry_after() >= 1);
    }
    slow.gate.may_end.add_permits(4);
    let answer = loop {
        let answer = slow.server.ask(Request::post("/pay", "d")).await;
        if answer.status != 503 {
            break answer;
        }
    };
    assert_eq!((answer.status, answer.is_replay(), slow.gate.runs.count()), (200, false, 4));
}
