//! Duplicates, handlers that fail, and responses that cannot be recorded.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::future::join_all;
use idem::OnCrash;
use idem::http::{IdempotencyLayer, Problem, Tx};
use idem_test_servers::web::{Answer, Request};
use tokio::io::AsyncReadExt as _;

use crate::bank::{App, Bank, LIMIT, Then, request, serve};
use crate::databases::{Database, TransactionOf};

/// Polls until the condition holds, for at most thirty seconds.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn assert_is_receipt(answer: &Answer, is_replay: bool) {
    assert_eq!((answer.status, answer.is_replay()), (201, is_replay), "{answer:?}");
}

pub(crate) async fn twenty_duplicates_at_once_have_one_effect_one_record_and_one_response<D: Database>() {
    have_one_effect(&Bank::<D>::with(4, |builder| builder).await).await;
}

/// Sends twenty duplicates at once, and checks that they have one effect.
pub(crate) async fn have_one_effect<D: Database>(bank: &Bank<D>) {
    let answers = join_all((0..20).map(|_| bank.server.ask(request("k")))).await;
    assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
    assert!(answers.iter().all(|answer| answer.lasting() == answers[0].lasting() && answer.status == 201));
    assert_eq!((bank.committed(), bank.app.runs.count()), ((1, 1), 1));
}

pub(crate) async fn duplicates_that_wait_use_no_connection_of_a_pool_of_two<D: Database>() {
    let bank = Bank::<D>::with(2, |builder| builder.wait(Duration::from_secs(20))).await;
    bank.then(Then::Waits);
    let first = tokio::spawn(request("k").ask_at(bank.server.address));
    bank.app.has_written.notified().await;
    let duplicates: Vec<_> =
        (0..20).map(|_| tokio::spawn(request("k").ask_at(bank.server.address))).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The pool has two connections: the first request uses one, and no duplicate uses the other.
    eventually("one connection is free", || D::in_use(&bank.pool) == 1).await;
    assert_is_receipt(&bank.server.ask(request("another")).await, false);
    bank.app.goes_on.notify_one();
    assert_is_receipt(&first.await.unwrap(), false);
    for duplicate in duplicates {
        assert_is_receipt(&duplicate.await.unwrap(), true);
    }
    assert_eq!((bank.committed(), bank.app.runs.count()), ((2, 2), 2));
}

pub(crate) async fn a_handler_that_fails_or_cannot_be_recorded_leaves_nothing_and_the_same_request_runs_at_once<
    D: Database,
>() {
    // After a panic, the transaction ends only a moment after the answer. Until then, its key is in flight
    // and its connection is in use. So the requests of this case wait for the key.
    let bank = Bank::<D>::with(4, |builder| builder).await;
    for (number, (then, status, words)) in [
        (Then::Refuses(StatusCode::SERVICE_UNAVAILABLE), 503, "refused"),
        (Then::Refuses(StatusCode::TOO_MANY_REQUESTS), 429, "refused"),
        (Then::Panics, 500, "failed unexpectedly"),
        (Then::MakesAStep, 500, ""),
        // The last three responses: one exceeds the layer's limit, one exceeds the store's limit, one is a
        // stream.
        (Then::AnswersAtLength(2 << 20), 500, "too large to record"),
        (Then::AnswersAtLength(LIMIT), 500, "too large to record"),
        (Then::Streams, 500, "too large to record"),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, number) = (format!("{then:?}"), number as u64);
        bank.then(then);
        let failed = bank.server.ask(request(&key)).await;
        assert_eq!(failed.status, status, "{then:?}: {failed:?}");
        assert!(String::from_utf8_lossy(&failed.body).contains(words), "{then:?}: {failed:?}");
        assert_eq!(bank.committed(), (number, number), "{then:?}");
        assert_is_receipt(&bank.server.ask(request(&key)).await, false);
        assert_is_receipt(&bank.server.ask(request(&key)).await, true);
        assert_eq!(bank.committed(), (number + 1, number + 1), "{then:?}");
    }
    eventually("all connections are back", || D::in_use(&bank.pool) == 0).await;
}

pub(crate) async fn a_response_that_breaks_off_and_a_client_that_goes_away_leave_nothing<D: Database>() {
    for then in [Then::BreaksOff, Then::Hangs] {
        let bank = Bank::<D>::with(2, |builder| builder).await;
        bank.then(then);
        let mut connection = request("k").send(bank.server.address).await;
        bank.app.has_written.notified().await;
        if then == Then::BreaksOff {
            let _ = connection.read_to_end(&mut Vec::new()).await;
        }
        drop(connection);
        eventually("its connection is back", || D::in_use(&bank.pool) == 0).await;
        assert_eq!(bank.committed(), (0, 0));
        assert_is_receipt(&bank.server.ask(request("k")).await, false);
        assert_eq!((bank.committed(), bank.app.runs.count()), ((1, 1), 2));
    }
}

pub(crate) async fn a_refusal_is_replayed_or_forgotten_and_what_its_handler_wrote_is_undone<D: Database>() {
    let bank = Bank::<D>::with(4, |builder| builder.forget_status(StatusCode::UNPROCESSABLE_ENTITY)).await;
    for (records, then, status) in
        [(1, Then::Refuses(StatusCode::PAYMENT_REQUIRED), 402), (2, Then::FailsInGrpc, 200)]
    {
        let key = format!("{then:?}");
        bank.then(then);
        let first = bank.server.ask(request(&key)).await;
        assert_eq!((first.status, first.is_replay()), (status, false), "{first:?}");
        let again = bank.server.ask(request(&key)).await;
        assert_eq!((again.lasting(), again.is_replay()), (first.lasting(), true));
        assert_eq!(bank.committed(), (0, records));
    }
    assert_eq!(bank.app.runs.count(), 2);
    bank.then(Then::Refuses(StatusCode::UNPROCESSABLE_ENTITY));
    assert_eq!(bank.server.ask(request("k")).await.status, 422);
    assert_eq!(bank.committed().0, 0);
    let corrected = || Request::post("/pay", "k").json(r#"{"cents":6}"#);
    assert_is_receipt(&bank.server.ask(corrected()).await, false);
    assert_is_receipt(&bank.server.ask(corrected()).await, true);
    assert_eq!(bank.committed().0, 1);
}

pub(crate) async fn a_key_is_for_one_request_while_it_is_processed_and_after_also_in_another_process<
    D: Database,
>() {
    let bank = Bank::<D>::open().await;
    let pool = D::pool(&bank.database.url(), 2).await;
    let other = D::store(&pool, LIMIT).await;
    let other = serve::<D>(other, pool.clone(), App::default(), |builder| builder.wait(Duration::ZERO)).await;
    bank.then(Then::Waits);
    let first = tokio::spawn(request("k").ask_at(bank.server.address));
    bank.app.has_written.notified().await;
    let changed = || Request::post("/pay", "k").json(r#"{"cents":6}"#);
    for server in [&bank.server, &other] {
        assert_eq!(server.ask(request("k")).await.problem(), Problem::InFlight.name());
    }
    assert_eq!(bank.server.ask(changed()).await.problem(), "key-reused");
    eventually("its connection is back", || D::in_use(&pool) == 0).await;
    bank.app.goes_on.notify_one();
    assert_is_receipt(&first.await.unwrap(), false);
    for server in [&bank.server, &other] {
        assert_is_receipt(&server.ask(request("k")).await, true);
        assert_eq!(server.ask(changed()).await.problem(), "key-reused");
    }
    assert_eq!((bank.committed(), bank.app.runs.count()), ((1, 1), 1));
}

pub(crate) async fn a_transaction_is_taken_once_only_where_there_is_one_and_leaves_no_trace_of_a_crash<
    D: Database,
>() {
    let bank = Bank::<D>::open().await;
    bank.then(Then::TakesItAgain);
    assert_eq!((bank.server.ask(request("k")).await.status, bank.committed()), (500, (0, 0)));
    let none = Tx::<TransactionOf<D>>::of(&axum::http::Extensions::new());
    assert!(matches!(none, Err(idem::Error::Configuration { .. })));
    let store = D::store(&bank.pool, LIMIT).await;
    let builder = IdempotencyLayer::in_transaction(store, bank.pool.clone()).shared_by_all_clients();
    assert!(builder.clone().fail_open().build().is_err());
    assert!(builder.on_crash(OnCrash::InDoubt).build().is_err());
}

pub(crate) async fn a_transaction_that_a_handler_leaves_behind_is_not_committed<D: Database>() {
    let bank = Bank::<D>::open().await;
    bank.then(Then::LeavesItBehind);
    assert_eq!(bank.server.ask(request("k")).await.problem(), "store-unavailable");
    assert_eq!(bank.committed(), (0, 0));
    // The key stays claimed until the transaction that the handler left behind is dropped.
    assert_eq!(bank.server.ask(request("k")).await.problem(), "in-flight");
    drop(bank.app.left_behind.lock().unwrap().take());
    eventually("its connection is back", || D::in_use(&bank.pool) == 0).await;
    assert_is_receipt(&bank.server.ask(request("k")).await, false);
    assert_eq!(bank.committed(), (1, 1));
}
