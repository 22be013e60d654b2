//! Tests of features that only the actix-web middleware has.

use actix_web::dev::Service as _;
use actix_web::http::header::HeaderName;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use idem::http::{IdempotencyLayer, Tx};
use idem::{MemoryStore, PostgresStore};
use idem_actix::Idempotency;
use idem_test_servers::Postgres;
use idem_test_servers::web::{Request, read_until};
use sqlx::postgres::{PgPool, PgTransaction};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::framework::Server;

fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::shared_by_all_clients(MemoryStore::new())
}

#[derive(Clone)]
struct Account(String);

#[tokio::test]
async fn the_tenant_is_an_extension_that_middleware_outside_has_set() {
    let layer = IdempotencyLayer::builder(MemoryStore::new())
        .tenant(|request| Some(request.extensions.get::<Account>()?.0.clone()))
        .build()
        .unwrap();
    let server = Server::start(move |routes| {
        let guarded = web::resource("/pay")
            .wrap(Idempotency::new(layer.clone()).with_extension::<Account>())
            .wrap_fn(|request, next| {
                if let Some(account) = request.headers().get("x-account") {
                    let account = Account(account.to_str().unwrap().to_owned());
                    request.extensions_mut().insert(account);
                }
                next.call(request)
            })
            .route(web::post().to(|| async { "paid" }));
        routes.service(guarded);
    });
    let of = |account: &str| Request::post("/pay", "k").header("X-Account", account);
    for (account, replay) in [("one", false), ("other", false), ("one", true)] {
        let answer = server.ask(of(account)).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (&b"paid"[..], replay), "{account}");
    }
    assert_eq!(server.ask(Request::post("/pay", "k")).await.problem(), "tenant-missing");
}

#[tokio::test]
async fn an_error_of_middleware_inside_releases_the_key() {
    let server = Server::start(|routes| {
        let inside = web::resource("/pay")
            .wrap_fn(|request, next| {
                let fails = request.headers().contains_key("x-fails");
                let response = next.call(request);
                async move {
                    if fails { Err(actix_web::error::ErrorBadRequest("not yet")) } else { response.await }
                }
            })
            .wrap(Idempotency::new(layer()))
            .route(web::post().to(|| async { "done" }));
        routes.service(inside);
    });
    assert_eq!(server.ask(Request::post("/pay", "m").header("X-Fails", "1")).await.status, 400);
    for replay in [false, true] {
        let answer = server.ask(Request::post("/pay", "m")).await;
        assert_eq!((answer.status, &answer.body[..], answer.is_replay()), (200, &b"done"[..], replay));
    }
}

#[tokio::test]
async fn a_method_that_is_not_guarded_streams_both_ways() {
    let server = Server::start(move |routes| {
        let echo = |payload: web::Payload| async move { HttpResponse::Ok().streaming(payload) };
        routes.service(web::resource("/echo").wrap(Idempotency::new(layer())).route(web::put().to(echo)));
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The request body never ends, but the server echoes its bytes at once.
    let request = "PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, "12345678").await;
}

#[derive(Clone, Debug)]
struct Mark;

#[tokio::test]
async fn middleware_outside_sees_the_error_and_the_extensions_of_a_handlers_response() {
    let server = Server::start(|routes| {
        let handler = || async { Err::<HttpResponse, _>(actix_web::error::ErrorConflict("taken")) };
        let guarded = web::resource("/pay")
            .wrap_fn(|request, next| {
                let response = next.call(request);
                async {
                    let mut response = response.await?;
                    response.response_mut().extensions_mut().insert(Mark);
                    Ok(response)
                }
            })
            .wrap(Idempotency::new(layer()))
            .wrap_fn(|request, next| {
                let response = next.call(request);
                async {
                    let mut response = response.await?;
                    let error = response.response().error().map(ToString::to_string);
                    let mark = response.response().extensions().get::<Mark>().cloned();
                    let seen = format!("{error:?} {mark:?}").parse().unwrap();
                    response.headers_mut().insert(HeaderName::from_static("x-seen"), seen);
                    Ok(response)
                }
            })
            .route(web::post().to(handler));
        routes.service(guarded);
    });
    for (replay, seen) in [(false, r#"Some("taken") Some(Mark)"#), (true, "None None")] {
        let answer = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((answer.status, &answer.body[..], answer.is_replay()), (409, &b"taken"[..], replay));
        assert_eq!(answer.text("x-seen"), Some(seen));
    }
}

async fn pay(request: HttpRequest, cents: String) -> HttpResponse {
    let extensions = idem_actix::extensions(&request);
    let mut tx = Tx::<PgTransaction<'static>>::of(&extensions).unwrap();
    tx.execute(AssertSqlSafe(format!("INSERT INTO payments (cents) VALUES ({cents})"))).await.unwrap();
    if cents == "0" { HttpResponse::PaymentRequired().finish() } else { HttpResponse::Created().body("paid") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_writes_and_the_record_of_its_response_are_one_commit() {
    let database = Postgres::shared();
    database.sql("CREATE TABLE payments (cents BIGINT NOT NULL)");
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let store = PostgresStore::from_pool(&pool).await.unwrap();
    let layer = IdempotencyLayer::in_transaction(store, pool).shared_by_all_clients().build().unwrap();
    let server = Server::start(move |routes| {
        let guarded = web::resource("/pay").wrap(Idempotency::new(layer.clone()));
        routes.service(guarded.route(web::post().to(pay)));
    });
    let counts = "SELECT (SELECT count(*) FROM payments) || ' ' || (SELECT count(*) FROM idem_records)";
    for (key, cents, status, left) in [("a", "5", 201, "1 1"), ("b", "0", 402, "1 2")] {
        for is_replay in [false, true] {
            let request = Request::post("/pay", key).header("content-type", "text/plain").body(cents);
            let answer = server.ask(request).await;
            assert_eq!((answer.status, answer.is_replay()), (status, is_replay), "{answer:?}");
            assert_eq!(tokio::task::block_in_place(|| database.sql(counts)), left);
        }
    }
}
