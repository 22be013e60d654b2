//! Tests of unary calls under a key. These calls use no connections. The program `tests/rigs/clients` tests
//! calls over connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod bank;
mod twice;

use std::time::Duration;

use bank::{Bank, Guarded, pay, pay_all, statement};
use futures_util::stream::{self, StreamExt as _};
use idem_http::{Builder, Guard, IdempotencyLayer, Recording, RequestFingerprint};
use idem_runtime::{MemoryStore, OnCrash};
use idem_tonic::GrpcIdempotencyLayer;
use tonic::{Code, Request, Status};
use tower_layer::Layer as _;

fn builder() -> Builder<MemoryStore> {
    IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients()
}

fn grpc(builder: Builder<MemoryStore>) -> GrpcIdempotencyLayer<MemoryStore> {
    GrpcIdempotencyLayer::new(builder.build().unwrap())
}

fn start(builder: Builder<MemoryStore>) -> (Guarded, Bank) {
    let bank = Bank::new();
    (grpc(builder).layer(bank.clone()), bank)
}

fn payment<M>(key: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

fn of(amount: u64) -> String {
    amount.to_string()
}

fn answering(code: Code) -> String {
    format!("code {}", code as i32)
}

fn problem(status: &Status) -> Option<&str> {
    status.metadata().get("idempotency-problem").map(|name| name.to_str().unwrap())
}

fn is_replay(metadata: &tonic::metadata::MetadataMap) -> bool {
    metadata.get("idempotency-replayed").is_some()
}

#[tokio::test]
async fn a_repeated_call_gets_the_first_answer_with_its_metadata_and_does_not_run() {
    let (server, bank) = start(builder());
    let first = pay(&server, payment("k", of(5))).await.unwrap();
    let again = pay(&server, payment("k", of(5))).await.unwrap();
    for answer in [&first, &again] {
        assert_eq!(answer.get_ref(), "receipt 1 for 5");
        assert_eq!(answer.metadata().get("x-bank").unwrap(), "7");
    }
    assert_eq!((is_replay(first.metadata()), is_replay(again.metadata()), bank.runs()), (false, true, 1));
    let other = pay(&server, payment("other", of(5))).await.unwrap();
    assert_eq!((other.get_ref().as_str(), bank.runs()), ("receipt 2 for 5", 2));
}

#[tokio::test]
async fn a_final_status_is_replayed_whole_and_a_passing_one_releases_the_key_unless_a_function_decides() {
    let kept = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::OutOfRange,
    ];
    for is_set in [false, true] {
        let layer = grpc(builder()).recording(if is_set {
            |code| (code == Code::NotFound).then_some(Recording::Release)
        } else {
            |_| None
        });
        let server = layer.layer(Bank::new());
        for code in (1..=16).map(Code::from_i32) {
            let key = format!("{code:?}");
            let first = pay(&server, payment(&key, answering(code))).await.unwrap_err();
            let again = pay(&server, payment(&key, answering(code))).await.unwrap_err();
            assert_eq!((first.code(), again.code()), (code, code));
            assert_eq!(again.metadata().get("x-reason").unwrap(), "asked");
            let kept = kept.contains(&code) && !(is_set && code == Code::NotFound);
            assert_eq!(again.message() == first.message(), kept, "{code:?}");
            assert_eq!(is_replay(again.metadata()), kept, "{code:?}");
        }
    }
}

#[tokio::test]
async fn an_error_that_says_nothing_of_the_call_is_in_doubt_where_the_policy_says_so() {
    let (server, bank) = start(builder().on_crash(OnCrash::InDoubt));
    pay(&server, payment("k", answering(Code::Unknown))).await.unwrap_err();
    let refused = pay(&server, payment("k", answering(Code::Unknown))).await.unwrap_err();
    assert_eq!((refused.code(), problem(&refused)), (Code::FailedPrecondition, Some("in-doubt")));
    // After `UNAVAILABLE` the key is free, because the code says that nothing was done.
    pay(&server, payment("free", answering(Code::Unavailable))).await.unwrap_err();
    let again = pay(&server, payment("free", answering(Code::Unavailable))).await.unwrap_err();
    assert_eq!((again.code(), problem(&again)), (Code::Unavailable, None));
    assert_eq!(bank.runs(), 3);
}

#[tokio::test]
async fn a_call_in_flight_another_message_and_a_missing_key_are_statuses_with_the_name_of_the_problem() {
    let (server, bank) = start(builder());
    let (first, ()) = tokio::join!(pay(&server, payment("k", "slow".to_owned())), async {
        bank.begun.acquire().await.unwrap().forget();
        let refused = pay(&server, payment("k", "slow".to_owned())).await.unwrap_err();
        assert_eq!((refused.code(), problem(&refused)), (Code::Aborted, Some("in-flight")));
        assert!(
            refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse::<u64>().unwrap() >= 1
        );
        let refused = pay(&server, payment("k", of(5))).await.unwrap_err();
        assert_eq!((refused.code(), problem(&refused)), (Code::FailedPrecondition, Some("key-reused")));
        bank.may_end.add_permits(1);
    });
    first.unwrap();
    let refused = pay(&server, Request::new(of(5))).await.unwrap_err();
    assert_eq!((refused.code(), problem(&refused)), (Code::InvalidArgument, Some("key-missing")));
    let refused = pay(&server, payment("a b", of(5))).await.unwrap_err();
    assert_eq!((refused.code(), problem(&refused)), (Code::InvalidArgument, Some("key-malformed")));
    assert!(refused.message().contains("space"), "{}", refused.message());
    assert_eq!(bank.runs(), 1);
}

#[tokio::test]
async fn a_method_that_panics_is_internal_and_runs_again_and_knows_it() {
    let (server, bank) = start(builder().fingerprint(RequestFingerprint::new().without_body()));
    let failed = pay(&server, payment("k", "panic".to_owned())).await.unwrap_err();
    assert_eq!((failed.code(), problem(&failed)), (Code::Internal, Some("handler-failed")));
    let again = pay(&server, payment("k", of(5))).await.unwrap();
    assert_eq!((again.get_ref().as_str(), bank.runs()), ("receipt 2 for 5, recovered", 2));
}

#[tokio::test]
async fn an_answer_too_large_to_keep_goes_through_and_the_call_is_not_run_again() {
    let (server, bank) = start(builder().max_response_bytes(1_000));
    let large = || payment("k", "x".repeat(5_000));
    assert!(pay(&server, large()).await.unwrap().get_ref().len() > 5_000);
    let refused = pay(&server, large()).await.unwrap_err();
    assert_eq!((refused.code(), problem(&refused)), (Code::FailedPrecondition, Some("response-not-stored")));
    assert_eq!(bank.runs(), 1);
}

#[tokio::test]
async fn a_call_that_streams_is_refused_with_a_clear_status() {
    let (server, bank) = start(builder().guard(|_| Guard::Optional));
    let two = payment("request", stream::iter([of(1), of(2)]));
    let refused = pay_all(&server, two).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("streams its request"), "{}", refused.message());
    assert_eq!(bank.runs(), 0);

    for _ in 0..2 {
        let refused = statement(&server, payment("answer", of(1))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        assert!(refused.message().contains("streams its answer"), "{}", refused.message());
        assert_eq!(bank.runs(), 1);
    }
    // Without a key, the layer has no effect.
    let receipts = statement(&server, Request::new(of(1))).await.unwrap();
    assert_eq!((receipts.len(), bank.runs()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_stays_open_behind_its_first_message_is_refused_in_time_and_takes_no_key() {
    let (server, bank) = start(builder());
    let open = payment("k", stream::iter([of(1)]).chain(stream::pending()));
    let call = tokio::time::timeout(Duration::from_secs(60), pay_all(&server, open));
    let refused = call.await.unwrap().unwrap_err();
    assert_eq!((refused.code(), bank.runs()), (Code::Unimplemented, 0));
    assert_eq!(pay(&server, payment("k", of(1))).await.unwrap().get_ref(), "receipt 1 for 1");
}

/// In the format of gRPC-Web, the trailers are in the body. Without the refusal, the layer would count them
/// as a second message, after the method has run.
#[tokio::test]
async fn a_call_in_the_format_of_grpc_web_is_refused_before_anything_runs() {
    let (server, bank) = start(builder());
    for kind in ["application/grpc-web", "Application/gRPC-Web-Text+proto"] {
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"\0\0\0\0\0"));
        let request = http::Request::post("/bank.Bank/Pay")
            .header("content-type", kind)
            .header("idempotency-key", "k")
            .body(tonic::body::Body::new(body));
        let answer = tower::ServiceExt::oneshot(server.clone(), request.unwrap()).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::Unimplemented, "{kind}");
        assert!(status.message().contains("gRPC-Web"), "{}", status.message());
    }
    assert_eq!(bank.runs(), 0);
}
