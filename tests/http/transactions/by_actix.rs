//! A handler of actix-web in its request's transaction.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use idem::http::{IdempotencyLayer, Tx};
use idem_actix::Idempotency;
use idem_test_servers::web::Request;
use idem_test_servers::{DatabaseServer, PostgresEngine as Pg};
use sqlx::{Executor as _, Postgres};

use crate::bank::LIMIT;
use crate::databases::Database as _;

async fn pay(request: HttpRequest, cents: String) -> HttpResponse {
    let extensions = idem_actix::extensions(&request);
    let mut tx = Tx::<sqlx::Transaction<'static, Postgres>>::of(&extensions).unwrap();
    tx.execute(sqlx::AssertSqlSafe(format!("INSERT INTO payments (cents) VALUES ({cents})"))).await.unwrap();
    if cents == "0" { HttpResponse::PaymentRequired().finish() } else { HttpResponse::Created().body("paid") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_writes_and_the_record_of_its_response_are_one_commit() {
    let database = DatabaseServer::<Pg>::shared();
    database.sql("CREATE TABLE payments (cents BIGINT NOT NULL)");
    let pool = Pg::pool(&database.url(), 4).await;
    let store = Pg::store(&pool, LIMIT).await;
    let layer = IdempotencyLayer::in_transaction(store, pool).shared_by_all_clients().build().unwrap();
    let app = move || App::new().wrap(Idempotency::new(layer.clone())).route("/pay", web::post().to(pay));
    let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(server);
    let committed = || {
        let counts = "SELECT (SELECT count(*) FROM payments) || ' ' || (SELECT count(*) FROM idem_records)";
        tokio::task::block_in_place(|| database.sql(counts))
    };
    for (key, cents, status, left) in [("a", "5", 201, "1 1"), ("b", "0", 402, "1 2")] {
        for is_replay in [false, true] {
            let request = Request::post("/pay", key).header("content-type", "text/plain").body(cents);
            let answer = request.ask(address).await;
            assert_eq!((answer.status, answer.is_replay()), (status, is_replay), "{answer:?}");
            assert_eq!(committed(), left);
        }
    }
    drop(handle.stop(false));
}
