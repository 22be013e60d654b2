//! The service that takes the payments, on each web framework.

use std::net::SocketAddr;

use actix_web::{App, HttpServer, web};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use clap::ValueEnum;
use http::StatusCode;
use idem::Store;
use idem::http::IdempotencyLayer;
use idem_actix::Idempotency;
use idem_tonic::GrpcIdempotencyLayer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server as Transport;

use crate::books::Books;
use crate::grpc::{self, Bank};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Framework {
    Axum,
    Actix,
    Tonic,
}

impl Framework {
    pub(crate) const ALL: [Self; 3] = [Self::Axum, Self::Actix, Self::Tonic];

    /// Starts a server in this process, and returns its address.
    pub(crate) async fn start<St: Store>(
        self,
        layer: IdempotencyLayer<St>,
        books: Books,
    ) -> std::io::Result<SocketAddr> {
        if self == Self::Actix {
            let app = move || {
                let books = books.clone();
                let handler = web::post().to(move |number: String| pay_number(books.clone(), number));
                App::new().wrap(Idempotency::new(layer.clone())).route("/payments", handler)
            };
            let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0")?;
            let address = server.addrs()[0];
            tokio::spawn(server.run());
            return Ok(address);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        if self == Self::Tonic {
            let server =
                Transport::builder().layer(GrpcIdempotencyLayer::new(layer)).add_service(Bank(books));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        } else {
            let pay = async |State(books): State<Books>, number: String| {
                pay_number(books, number).await.map_err(|_| StatusCode::BAD_REQUEST)
            };
            let app = Router::new().route("/payments", post(pay)).layer(layer).with_state(books);
            tokio::spawn(async { axum::serve(listener, app).await });
        }
        Ok(address)
    }

    /// The path of the request for a payment, and the type of its body.
    pub(crate) const fn request_line(self) -> (&'static str, &'static str) {
        match self {
            Self::Axum | Self::Actix => ("/payments", "text/plain"),
            Self::Tonic => (grpc::PAY, "application/grpc"),
        }
    }

    /// The body of the request for this payment.
    pub(crate) fn request(self, number: u64) -> Vec<u8> {
        if self == Self::Tonic { grpc::request(number) } else { number.to_string().into_bytes() }
    }

    /// The receipt in the body of an answer.
    pub(crate) fn receipt(self, body: &[u8]) -> Option<String> {
        if self == Self::Tonic { grpc::receipt(body) } else { String::from_utf8(body.to_vec()).ok() }
    }
}

async fn pay_number(books: Books, number: String) -> Result<String, actix_web::error::ParseError> {
    let number = number.parse().map_err(|_| actix_web::error::ParseError::Incomplete)?;
    Ok(books.pay(number).await)
}
