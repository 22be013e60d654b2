//! A gRPC service of one method, as generated code has it, and its messages on the wire.

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

/// How many bytes come before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

#[derive(Clone, PartialEq, prost::Message)]
struct Payment {
    #[prost(uint64, tag = "1")]
    number: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Receipt {
    #[prost(string, tag = "1")]
    text: String,
}

/// The body of a request.
pub(crate) fn request(number: u64) -> Vec<u8> {
    let payment = Payment { number }.encode_to_vec();
    let length = u32::try_from(payment.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, &payment].concat()
}

/// The text of the receipt in an answer; `None` if the answer has no message, as that of an error.
pub(crate) fn receipt(body: &[u8]) -> Option<String> {
    Some(Receipt::decode(body.get(PREFIX..)?).ok()?.text)
}

/// The service.
#[derive(Clone)]
pub(crate) struct Bank(pub(crate) Books);

impl UnaryService<Payment> for Bank {
    type Response = Receipt;
    type Future = BoxFuture<'static, Result<Response<Receipt>, Status>>;

    fn call(&mut self, request: Request<Payment>) -> Self::Future {
        let books = self.0.clone();
        Box::pin(
            async move { Ok(Response::new(Receipt { text: books.pay(request.into_inner().number).await })) },
        )
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
        let mut grpc = Grpc::new(ProstCodec::<Receipt, Payment>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                PAY => grpc.unary(bank, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}
