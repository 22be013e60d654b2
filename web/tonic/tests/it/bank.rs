//! A gRPC service and its client, written like generated code, over a real connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::Request as HttpRequest;
use http::uri::PathAndQuery;
use idem_runtime::Store;
use idem_tonic::GrpcIdempotencyLayer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Server as Transport};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payment {
    #[prost(uint64, tag = "1")]
    pub(crate) amount: u64,
    /// The code in the answer of the first run.
    #[prost(int32, tag = "2")]
    pub(crate) code: i32,
    /// A special behaviour for this payment.
    #[prost(string, tag = "3")]
    pub(crate) wish: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// The service, with a count of its runs.
#[derive(Clone)]
pub(crate) struct Bank {
    runs: Arc<AtomicUsize>,
    pub(crate) begun: Arc<Semaphore>,
    pub(crate) may_end: Arc<Semaphore>,
}

impl Bank {
    pub(crate) fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { runs: Arc::default(), begun: none(), may_end: none() }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn pay(&self, payment: Payment) -> Result<Response<Receipt>, Status> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        if payment.wish == "slow" {
            self.begun.add_permits(1);
            self.may_end.acquire().await.unwrap().forget();
        }
        assert!(payment.wish != "panic", "it was asked for");
        let code = Code::from_i32(payment.code);
        if code != Code::Ok {
            let mut metadata = MetadataMap::new();
            metadata.insert("x-reason", "asked".parse().unwrap());
            return Err(Status::with_metadata(code, format!("run {run}"), metadata));
        }
        let recovered = idem_runtime::context().is_some_and(|context| context.recovered());
        let text = match &*payment.wish {
            "large" => "x".repeat(5_000),
            _ => {
                format!("receipt {run} for {}{}", payment.amount, if recovered { ", recovered" } else { "" })
            }
        };
        let mut response = Response::new(Receipt { text });
        response.metadata_mut().insert("x-bank", "7".parse().unwrap());
        Ok(response)
    }
}

/// Its methods, as in generated code.
struct Pay(Bank);

struct Statement(Bank);

impl UnaryService<Payment> for Pay {
    type Response = Receipt;
    type Future = BoxFuture<'static, Result<Response<Receipt>, Status>>;

    fn call(&mut self, request: Request<Payment>) -> Self::Future {
        let bank = self.0.clone();
        Box::pin(async move { bank.pay(request.into_inner()).await })
    }
}

impl ServerStreamingService<Payment> for Statement {
    type Response = Receipt;
    type ResponseStream = BoxStream<'static, Result<Receipt, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<Payment>) -> Self::Future {
        self.0.runs.fetch_add(1, Ordering::SeqCst);
        let receipts = stream::iter(["one", "two"]).map(|text| Ok(Receipt { text: text.to_owned() }));
        Box::pin(async { Ok(Response::new(receipts.boxed())) })
    }
}

impl NamedService for Bank {
    const NAME: &'static str = "bank.Bank";
}

impl tower_service::Service<HttpRequest<Body>> for Bank {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let bank = self.clone();
        let mut grpc = Grpc::new(ProstCodec::<Receipt, Payment>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/bank.Bank/Pay" => grpc.unary(Pay(bank), request).await,
                "/bank.Bank/Statement" => grpc.server_streaming(Statement(bank), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// The server, which stops when this is dropped, and a client's connection to it.
pub(crate) struct Server {
    channel: Channel,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start<St: Store>(bank: Bank, layer: GrpcIdempotencyLayer<St>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let server = Transport::builder().layer(layer).add_service(bank);
        let task = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { channel, task }
    }

    async fn client(&self) -> Client<Channel> {
        let mut client = Client::new(self.channel.clone());
        client.ready().await.unwrap();
        client
    }

    pub(crate) async fn pay(&self, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
        let path = PathAndQuery::from_static("/bank.Bank/Pay");
        self.client().await.unary(request, path, ProstCodec::<Payment, Receipt>::default()).await
    }

    pub(crate) async fn statement(&self, request: Request<Payment>) -> Result<Vec<Receipt>, Status> {
        let path = PathAndQuery::from_static("/bank.Bank/Statement");
        let codec = ProstCodec::<Payment, Receipt>::default();
        let response = self.client().await.server_streaming(request, path, codec).await?;
        let receipts: Vec<_> = response.into_inner().collect().await;
        receipts.into_iter().collect()
    }

    /// Sends these payments as a stream, to the unary method.
    pub(crate) async fn pay_all(
        &self,
        key: &str,
        payments: BoxStream<'static, Payment>,
    ) -> Result<Response<Receipt>, Status> {
        let path = PathAndQuery::from_static("/bank.Bank/Pay");
        let mut request = Request::new(payments);
        request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
        self.client().await.client_streaming(request, path, ProstCodec::<Payment, Receipt>::default()).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
