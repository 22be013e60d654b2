//! `idem_testing::twice` around a gRPC service whose client is in the same process.

use std::future::ready;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use idem_http::Recording;
use idem_testing::{Grpc, Twice, twice};
use tonic::Code;
use tower_layer::Layer as _;

use crate::bank::{Bank, pay};
use crate::{answering, builder, grpc, of, payment};

/// The service under `twice`. Its runs count as its effects.
fn watched<S>(service: S, bank: &Bank) -> Twice<S, Grpc> {
    let bank = bank.clone();
    twice(service).effects(move || ready(bank.runs() as u64)).grpc()
}

#[tokio::test]
async fn a_guarded_method_passes_and_its_client_sees_one_answer_with_its_message_and_metadata() {
    let bank = Bank::new();
    let service = watched(grpc(builder()).layer(bank.clone()), &bank);
    let answer = pay(&service, payment("k", of(5))).await.unwrap();
    assert_eq!((answer.get_ref().as_str(), bank.runs()), ("receipt 1 for 5", 1));
    assert!(answer.metadata().contains_key("x-bank"));
    let refused = pay(&service, payment("k-2", answering(Code::NotFound))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "run 2"));
    // By default, an answer that asks the client to try again is not recorded. This layer keeps it.
    let layer = grpc(builder()).recording(|_| Some(Recording::Keep));
    let service = watched(layer.layer(bank.clone()), &bank);
    assert_eq!(
        pay(&service, payment("k", answering(Code::Unavailable))).await.unwrap_err().message(),
        "run 3"
    );
}

#[tokio::test]
async fn a_method_outside_of_the_layer_is_found() {
    let bank = Bank::new();
    let service = watched(bank.clone(), &bank);
    let test = AssertUnwindSafe(pay(&service, payment("k", of(5)))).catch_unwind();
    let message = *test.await.expect_err("no fault").downcast::<String>().unwrap();
    println!("{message}");
    let expected = "POST /bank.Bank/Pay did something twice: the effects went from 0 to 2 when it came twice at the same time, and \
                    to 3 when it came again; one request may raise them by one";
    assert_eq!(message, expected);
}
