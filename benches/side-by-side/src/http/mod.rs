//! Requests to a server in this process: without the layer, with the layer on memory and on Redis, and with a
//! middleware on Redis that is written by hand. The handler does nothing, and clients and servers share the
//! machine. So a layer costs a larger part of the time here than in a real service.

mod by_hand;

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{Request, StatusCode};
use axum::routing::post;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idem::http::IdempotencyLayer;
use idem::{MemoryStore, RedisStore};
use idem_test_servers::Redis;
use tokio::net::TcpListener;

use crate::arm::{Anything, Arm, Contest, over, right};

const BODY: &str = r#"{"amount":1999,"currency":"EUR","to":"8e03978e-40d5-43e8-bc93-6894a57f9324"}"#;

type Sender = Client<HttpConnector, Body>;

fn routes() -> Router {
    let pay = |body: Bytes| async move {
        (StatusCode::CREATED, [(CONTENT_TYPE, "application/json"), (LOCATION, "/payments/1")], body)
    };
    Router::new().route("/payments", post(pay))
}

/// Sends a payment. `replayed` says whether the answer must be a replay.
async fn pay(sender: Sender, server: SocketAddr, key: String, replayed: bool) -> Anything<()> {
    let request = Request::post(format!("http://{server}/payments"))
        .header(CONTENT_TYPE, "application/json")
        .header("idempotency-key", format!("\"{key}\""))
        .body(Body::from(BODY))?;
    let (head, body) = sender.request(request).await?.into_parts();
    let body = to_bytes(Body::new(body), usize::MAX).await?;
    right(body == BODY && head.headers.contains_key("idempotency-replayed") == replayed)
}

async fn arm(name: &'static str, router: Router, replays: bool) -> Anything<Arm> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    let sender: Sender = Client::builder(TokioExecutor::new()).build_http();
    let call = |replayed| over(&sender, move |sender, key| pay(sender, server, key, replayed));
    Ok(Arm { name, fresh: call(false), replay: call(replays), work: None })
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let memory = routes().layer(IdempotencyLayer::shared_by_all_clients(MemoryStore::new()));
    let on_redis = IdempotencyLayer::shared_by_all_clients(RedisStore::connect(&url).await?);
    let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    Ok(vec![
        arm("no layer", routes(), false).await?,
        arm("the layer, memory", memory, true).await?,
        arm("by hand, Redis", by_hand::guarded(routes(), connection), true).await?,
        arm("the layer, Redis", routes().layer(on_redis), true).await?,
    ])
}

pub(crate) fn contest() -> Anything<Contest> {
    let server = Redis::start();
    Ok(Contest::new("HTTP", server.url(), None, server, arms))
}
