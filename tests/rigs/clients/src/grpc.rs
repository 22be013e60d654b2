//! A gRPC service with one method, in the form of generated code, and its messages on the wire. The request
//! is a number (the well-known type `UInt64Value`), and the answer is a text (`StringValue`).

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request as HttpRequest, Response as HttpResponse};
use prost::Message as _;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::books::Books;

/// The path of the method.
pub(crate) const PAY: &str = "/bank.Bank/Pay";

/// How many bytes come before each message: one says whether the message is compressed, four are its length.
const PREFIX: usize = 5;

/// The body of a request.
pub(crate) fn request(number: u64) -> Vec<u8> {
    let payment = number.encode_to_vec();
    let length = u32::try_from(payment.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, &payment].concat()
}

/// The text of the receipt in an answer; `None` if the answer has no message, for example if it is an error.
pub(crate) fn receipt(body: &[u8]) -> Option<String> {
    String::decode(body.get(PREFIX..)?).ok()
}

#[derive(Clone)]
pub(crate) struct Bank(pub(crate) Books);

impl UnaryService<u64> for Bank {
    type Response = String;
    type Future = BoxFuture<'static, Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let books = self.0.clone();
        Box::pin(async move { Ok(Response::new(books.pay(request.into_inner()).await)) })
    }
}

impl NamedService for Bank {
    const NAME: &'static str = "bank.Bank";
}

impl tower_service::Service<HttpRequest<Body>> for Bank {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let bank = self.clone();
        let mut grpc = Grpc::new(ProstCodec::<String, u64>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                PAY => grpc.unary(bank, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}
