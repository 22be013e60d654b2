//! A server that writes payments in the transaction of the request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request as AxumRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures_util::stream;
use idem::http::{Builder, IdempotencyLayer, Idempotent, Recording, Transactional, Tx};
use idem_test_servers::DatabaseServer;
use idem_test_servers::web::{Request, Server};
use tokio::sync::Notify;

use crate::databases::{Database, TransactionOf};
use crate::support::Runs;

/// The largest result that the store records. Only the cases that test this limit have larger results.
pub(crate) const LIMIT: usize = 64 * 1024;

/// What the next run of the handler does after it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Refuses(StatusCode),
    /// Answers like a gRPC method that failed, with `Recording::Keep`.
    FailsInGrpc,
    Panics,
    BreaksOff,
    Hangs,
    /// Waits until the case lets the handler continue.
    Waits,
    AnswersAtLength(usize),
    Streams,
    TakesItAgain,
    LeavesItBehind,
    MakesAStep,
}

/// What the handler shares with its case.
#[derive(Clone, Default)]
pub(crate) struct App {
    pub(crate) runs: Runs,
    then: Arc<Mutex<Option<Then>>>,
    pub(crate) has_written: Arc<Notify>,
    pub(crate) goes_on: Arc<Notify>,
    pub(crate) left_behind: Arc<Mutex<Option<Box<dyn std::any::Any + Send>>>>,
}

impl App {
    pub(crate) fn then(&self, then: Option<Then>) {
        *self.then.lock().unwrap() = then;
    }
}

/// A database, the server's pool of connections to it, and the server.
pub(crate) struct Bank<D: Database> {
    pub(crate) database: DatabaseServer<D>,
    pub(crate) pool: D::Pool,
    pub(crate) app: App,
    pub(crate) server: Server,
}

pub(crate) fn request(key: &str) -> Request {
    Request::post("/pay", key).json(r#"{"cents":5}"#)
}

pub(crate) type Settings<D> = Builder<Transactional<<D as Database>::Store, <D as Database>::Pool>>;

impl<D: Database> Bank<D> {
    pub(crate) async fn open() -> Self {
        Self::with(4, |builder| builder.wait(Duration::ZERO)).await
    }

    /// A bank with a pool of this many connections, and these settings.
    pub(crate) async fn with(connections: u32, settings: fn(Settings<D>) -> Settings<D>) -> Self {
        let database = DatabaseServer::<D>::shared();
        let url = database.url();
        Self::on(database, &url, connections, settings).await
    }

    pub(crate) async fn on(
        database: DatabaseServer<D>,
        url: &str,
        connections: u32,
        settings: fn(Settings<D>) -> Settings<D>,
    ) -> Self {
        database.sql("CREATE TABLE IF NOT EXISTS payments (cents BIGINT NOT NULL)");
        let (pool, app) = (D::pool(url, connections).await, App::default());
        let store = D::store(&pool, LIMIT).await;
        let server = serve::<D>(store, pool.clone(), app.clone(), settings).await;
        Self { database, pool, app, server }
    }

    pub(crate) fn then(&self, then: Then) {
        self.app.then(Some(then));
    }

    fn count(&self, table: &str) -> u64 {
        tokio::task::block_in_place(|| self.database.sql(&format!("SELECT count(*) FROM {table}")))
            .parse()
            .unwrap()
    }

    /// How many payments and how many records are committed.
    pub(crate) fn committed(&self) -> (u64, u64) {
        (self.count("payments"), self.count("idem_records"))
    }
}

pub(crate) async fn serve<D: Database>(
    store: D::Store,
    pool: D::Pool,
    app: App,
    settings: fn(Settings<D>) -> Settings<D>,
) -> Server {
    let builder = IdempotencyLayer::in_transaction(store, pool).shared_by_all_clients();
    let layer = settings(builder).build().unwrap();
    Server::start(Router::new().route("/pay", post(pay::<D>)).layer(layer).with_state(app)).await
}

async fn pay<D: Database>(
    State(app): State<App>,
    Idempotent(call): Idempotent,
    request: AxumRequest,
) -> Response {
    assert!(!call.recovered());
    let number = app.runs.run();
    let (mut parts, body) = request.into_parts();
    let mut tx = match Tx::<TransactionOf<D>>::from_request_parts(&mut parts, &()).await {
        Ok(tx) => tx,
        Err(error) => return error.into_response(),
    };
    let sent: serde_json::Value =
        serde_json::from_slice(&axum::body::to_bytes(body, 1 << 20).await.unwrap()).unwrap();
    let insert = format!("INSERT INTO payments (cents) VALUES ({})", sent["cents"]);
    assert!(D::run(&mut tx, insert).await);
    app.has_written.notify_one();
    let then = app.then.lock().unwrap().take();
    let receipt = || (StatusCode::CREATED, [("x-run", number.to_string())], Json(number)).into_response();
    match then {
        None => receipt(),
        Some(Then::Refuses(status)) => (status, "refused").into_response(),
        Some(Then::FailsInGrpc) => (Extension(Recording::Keep), [("grpc-status", "9")], "").into_response(),
        Some(Then::Panics) => panic!("on purpose"),
        Some(Then::BreaksOff) => {
            let frames = [Ok(Bytes::from("half")), Err("gone")];
            Body::from_stream(stream::iter(frames)).into_response()
        }
        Some(Then::Hangs) => std::future::pending().await,
        Some(Then::Waits) => {
            app.goes_on.notified().await;
            receipt()
        }
        Some(Then::AnswersAtLength(length)) => "x".repeat(length).into_response(),
        Some(Then::Streams) => ([("content-type", "text/event-stream")], "data: 1\n\n").into_response(),
        Some(Then::TakesItAgain) => match Tx::<TransactionOf<D>>::from_request_parts(&mut parts, &()).await {
            Ok(_) => receipt(),
            Err(error) => error.into_response(),
        },
        Some(Then::LeavesItBehind) => {
            *app.left_behind.lock().unwrap() = Some(Box::new(tx));
            receipt()
        }
        Some(Then::MakesAStep) => match idem::step("one", || async { Ok::<_, idem::Error>(()) }).await {
            Ok(()) => receipt(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
    }
}
