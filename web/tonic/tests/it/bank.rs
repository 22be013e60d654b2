//! A gRPC service in this process, and its client. The requests and answers are texts.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::uri::PathAndQuery;
use idem_runtime::MemoryStore;
use idem_tonic::GrpcIdempotency;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;
use tower_service::Service;

const PAY: &str = "/bank.Bank/Pay";

/// The service, with a count of its runs.
#[derive(Clone)]
pub(crate) struct Bank {
    runs: Arc<AtomicUsize>,
    pub(crate) begun: Arc<Semaphore>,
    pub(crate) may_end: Arc<Semaphore>,
}

/// The service behind the layer.
pub(crate) type Guarded = GrpcIdempotency<Bank, MemoryStore>;

impl Bank {
    pub(crate) fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { runs: Arc::default(), begun: none(), may_end: none() }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Pays an amount, or does what the text says. The texts are `slow`, `panic`, and `code` with the number
    /// of a code.
    async fn pay(self, request: Request<String>) -> Result<Response<String>, Status> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let wish = request.into_inner();
        if wish == "slow" {
            self.begun.add_permits(1);
            self.may_end.acquire().await.unwrap().forget();
        }
        assert!(wish != "panic", "it was asked for");
        if let Some(code) = wish.strip_prefix("code ") {
            let mut metadata = MetadataMap::new();
            metadata.insert("x-reason", "asked".parse().unwrap());
            let code = Code::from_i32(code.parse().unwrap());
            return Err(Status::with_metadata(code, format!("run {run}"), metadata));
        }
        let is_recovered = idem_runtime::context().is_some_and(|context| context.recovered());
        let recovered = if is_recovered { ", recovered" } else { "" };
        let mut response = Response::new(format!("receipt {run} for {wish}{recovered}"));
        response.metadata_mut().insert("x-bank", "7".parse().unwrap());
        Ok(response)
    }
}

impl Service<http::Request<Body>> for Bank {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (bank, mut grpc) = (self.clone(), Grpc::new(ProstCodec::<String, String>::default()));
        Box::pin(async move {
            if request.uri().path() == PAY {
                return Ok(grpc.unary(service_fn(|request| bank.clone().pay(request)), request).await);
            }
            let statement = service_fn(|_: Request<String>| {
                bank.runs.fetch_add(1, Ordering::SeqCst);
                let receipts = stream::iter(["one", "two"].map(|text| Ok::<_, Status>(text.to_owned())));
                async { Ok::<_, Status>(Response::new(receipts)) }
            });
            Ok(grpc.server_streaming(statement, request).await)
        })
    }
}

pub(crate) async fn pay<S>(service: &S, request: Request<String>) -> Result<Response<String>, Status>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone,
{
    let mut client = Client::new(service.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<String, String>::default();
    client.unary(request, PathAndQuery::from_static(PAY), codec).await
}

/// Sends a stream to the unary method.
pub(crate) async fn pay_all<S>(service: &Guarded, request: Request<S>) -> Result<Response<String>, Status>
where
    S: Stream<Item = String> + Send + 'static,
{
    let mut client = Client::new(service.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<String, String>::default();
    client.client_streaming(request, PathAndQuery::from_static(PAY), codec).await
}

/// Calls the method that streams its answer.
pub(crate) async fn statement(service: &Guarded, request: Request<String>) -> Result<Vec<String>, Status> {
    let mut client = Client::new(service.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/bank.Bank/Statement");
    let codec = ProstCodec::<String, String>::default();
    let receipts = client.server_streaming(request, path, codec).await?;
    receipts.into_inner().collect::<Vec<_>>().await.into_iter().collect()
}
