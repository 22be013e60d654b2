//! `idem_testing::twice` around a gRPC service, whose client is in the same process.

use std::convert::Infallible;
use std::future::ready;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use idem_http::Recording;
use idem_testing::{Grpc, Twice, twice};
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::bank::{Bank, Payment, Receipt};
use crate::{answering, builder, grpc, of, payment};

/// The service under `twice`, whose runs are its effects.
fn watched<S>(service: S, bank: &Bank) -> Twice<S, Grpc> {
    let bank = bank.clone();
    twice(service).effects(move || ready(bank.runs() as u64)).grpc()
}

async fn pay<S>(service: &Twice<S, Grpc>, request: Request<Payment>) -> Result<Response<Receipt>, Status>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    let mut client = Client::new(service.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/bank.Bank/Pay");
    client.unary(request, path, ProstCodec::<Payment, Receipt>::default()).await
}

#[tokio::test]
async fn a_guarded_method_passes_and_its_client_sees_one_answer_with_its_message_and_metadata() {
    let bank = Bank::new();
    let service = watched(grpc(builder()).layer(bank.clone()), &bank);
    let answer = pay(&service, payment("k", of(5))).await.unwrap();
    assert_eq!((answer.get_ref().text.as_str(), bank.runs()), ("receipt 1 for 5", 1));
    assert!(answer.metadata().contains_key("x-bank"));
    let refused = pay(&service, payment("k-2", answering(Code::NotFound))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "run 2"));
    // An answer that asks the client to try again is none, and a call without a key is made once.
    let layer = grpc(builder()).recording(|_| Some(Recording::Keep));
    let service = watched(layer.layer(bank.clone()), &bank);
    assert_eq!(
        pay(&service, payment("k", answering(Code::Unavailable))).await.unwrap_err().message(),
        "run 3"
    );
    let service = twice(grpc(builder().guard(|_| idem_http::Guard::Optional)).layer(bank.clone())).grpc();
    pay(&service, payment("k", of(5))).await.unwrap();
    pay(&service, Request::new(of(5))).await.unwrap();
    assert_eq!(bank.runs(), 5);
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
