//! Tests of an annotated axum handler over a real socket: the client goes away, the body finishes, and the next client
//! gets its result.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idem::{MemoryStore, idempotent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

#[derive(Clone)]
struct App {
    store: MemoryStore,
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
    done: Arc<AtomicUsize>,
    gone: Arc<Semaphore>,
}

#[derive(Debug)]
struct Refused(idem::Error);

impl From<idem::Error> for Refused {
    fn from(error: idem::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::CONFLICT, self.0.kind().as_str()).into_response()
    }
}

#[idempotent(key = "{order}", store = app.store, detach)]
async fn pay(State(app): State<App>, Path(order): Path<u64>) -> Result<String, Refused> {
    app.begun.add_permits(1);
    app.may_end.acquire().await.unwrap().forget();
    let number = app.done.fetch_add(1, Ordering::SeqCst) + 1;
    Ok(format!("receipt {number} for {order}"))
}

/// The same handler with a guard that reports when the server has dropped the request.
async fn watched(State(app): State<App>, path: Path<u64>) -> Result<String, Refused> {
    let _gone = Gone(app.gone.clone());
    pay(State(app), path).await
}

struct Gone(Arc<Semaphore>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

/// Sends a request and leaves the connection open.
async fn send(server: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let headers = "Host: localhost\r\nConnection: close\r\nContent-Length: 0";
    let request = format!("POST {path} HTTP/1.1\r\n{headers}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}

#[tokio::test]
async fn a_detached_handler_finishes_when_its_client_disconnects_and_is_replayed() {
    let app = App {
        store: MemoryStore::new(),
        begun: Arc::new(Semaphore::new(0)),
        may_end: Arc::new(Semaphore::new(0)),
        done: Arc::default(),
        gone: Arc::new(Semaphore::new(0)),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/pay/{order}", post(pay)).route("/watched/{order}", post(watched));
    let router = router.with_state(app.clone());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let first = send(address, "/watched/42").await;
    app.begun.acquire().await.unwrap().forget();
    let refused = answer(send(address, "/pay/42").await).await;
    assert!(refused.starts_with("HTTP/1.1 409") && refused.ends_with("in_flight"), "{refused}");

    drop(first);
    app.gone.acquire().await.unwrap().forget();
    app.may_end.add_permits(1);
    let replayed = loop {
        let text = answer(send(address, "/pay/42").await).await;
        if !text.contains("in_flight") {
            break text;
        }
    };
    assert!(replayed.starts_with("HTTP/1.1 200") && replayed.ends_with("receipt 1 for 42"), "{replayed}");
    assert_eq!(app.done.load(Ordering::SeqCst), 1);
    server.abort();
}
