//! Cases of the example on each framework, as processes that share a store: duplicates, a server killed during a handler, a
//! server that gets the signal to end.

use std::any::Any;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idem_test_servers::web::{Answer, Request};
use idem_test_servers::{MariaDb, PgBouncer, Postgres, Redis, Server};

const PAYMENT: &str = r#"{"amount":1999,"currency":"EUR"}"#;

/// The framework, after which `main.rs` names this module.
fn framework() -> &'static str {
    module_path!().rsplit("::").next().unwrap()
}

/// A store that several servers share, and its server or folder, which ends with the test.
struct Shared {
    url: String,
    _owner: Box<dyn Any>,
}

fn sqlite() -> Shared {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    Shared { url, _owner: Box::new(folder) }
}

/// One store of every kind, or on actix-web one.
fn stores() -> Vec<Shared> {
    let sqlite = sqlite();
    // The adapter of actix-web knows no store, so one is enough there.
    if framework() == "actix" {
        return vec![sqlite];
    }
    let (redis, postgres, mariadb) = (Redis::start(), Postgres::shared(), MariaDb::shared());
    let behind = Postgres::shared();
    let pooler = PgBouncer::start(&behind, "transaction", "");
    vec![
        sqlite,
        Shared { url: redis.url(), _owner: Box::new(redis) },
        Shared { url: postgres.url(), _owner: Box::new(postgres) },
        Shared { url: mariadb.url(), _owner: Box::new(mariadb) },
        Shared { url: pooler.url(), _owner: Box::new((pooler, behind)) },
    ]
}

/// One server process.
struct Payments(Server);

impl Payments {
    fn start(store: &str, options: &str) -> Self {
        let (store, options) = (store.to_owned(), options.to_owned());
        let recipe = move |port: u16, _: &Path| {
            let mut command = crate::program(framework());
            command.args(["--addr", &format!("127.0.0.1:{port}"), "--store", &store]);
            command.args(options.split_whitespace()).env("RUST_LOG", "trace");
            command
        };
        Self(Server::start(|_| {}, recipe))
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.0.port()))
    }

    async fn ask(&self, request: &Request) -> Answer {
        request.ask(self.address()).await
    }

    async fn executions(&self, route: &str) -> u64 {
        let counts = self.ask(&Request::new("GET", "/executions")).await.json();
        counts["executions"].as_object().unwrap().get(route).map_or(0, |count| count.as_u64().unwrap())
    }

    async fn until_executed(&self, route: &str, times: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.executions(route).await < times {
            assert!(Instant::now() < deadline, "{route} was not executed {times} times in 20 s");
        }
    }
}

fn payment(key: &str) -> Request {
    Request::post("/payments", key).json(PAYMENT)
}

async fn executed(servers: &[&Payments], route: &str) -> u64 {
    join_all(servers.iter().map(|server| server.executions(route))).await.into_iter().sum()
}

#[tokio::test]
async fn of_200_simultaneous_duplicates_over_two_servers_one_is_executed_and_all_replays_are_identical() {
    for store in stores() {
        let (one, other) = (Payments::start(&store.url, ""), Payments::start(&store.url, ""));
        let request = Request::post("/payments", "k")
            .json(r#"{"amount":1999,"currency":"EUR","sleep_ms":200,"set_cookie":true}"#);
        let requests =
            (0..200).map(|number| if number % 2 == 0 { one.ask(&request) } else { other.ask(&request) });
        let answers = join_all(requests).await;
        let mut first = None;
        for answer in &answers {
            match answer.status {
                201 if answer.is_replay() => {}
                201 => assert!(first.replace(answer).is_none(), "two were executed"),
                _ => assert_eq!((answer.status, answer.problem()), (409, "in-flight".into())),
            }
        }
        let first = first.expect("one was executed").lasting();
        for replay in answers.iter().filter(|answer| answer.is_replay()) {
            assert_eq!(replay.lasting(), first);
            assert!(replay.all("set-cookie").is_empty());
        }
        for server in [&one, &other] {
            let replay = server.ask(&request).await;
            assert_eq!((replay.is_replay(), replay.lasting()), (true, first.clone()));
        }
        assert_eq!(executed(&[&one, &other], "POST /payments").await, 1);
    }
}

#[tokio::test]
async fn duplicates_over_two_servers_wait_for_the_response_where_they_are_told_to() {
    for store in stores() {
        let options = "--wait-ms 20000";
        let (one, other) = (Payments::start(&store.url, options), Payments::start(&store.url, options));
        let request =
            Request::post("/payments", "k").json(r#"{"amount":1999,"currency":"EUR","sleep_ms":200}"#);
        let requests =
            (0..100).map(|number| if number % 2 == 0 { one.ask(&request) } else { other.ask(&request) });
        let answers = join_all(requests).await;
        assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
        for answer in &answers {
            assert_eq!(answer.lasting(), answers[0].lasting());
        }
        assert_eq!(executed(&[&one, &other], "POST /payments").await, 1);
    }
}

#[tokio::test]
async fn a_server_killed_in_mid_handler_keeps_its_key_until_the_lease_ends_and_then_one_takes_over() {
    // Who takes over on which store is a case of the rig `pay`.
    let store = sqlite();
    let mut victim = Payments::start(&store.url, "--lease-ms 6000");
    let heir = Payments::start(&store.url, "--lease-ms 6000");
    // Both servers get the same payment. The first is killed during its sleep.
    let request = Request::post("/payments", "k").json(r#"{"amount":1999,"currency":"EUR","sleep_ms":5000}"#);
    let _client = request.send(victim.address()).await;
    victim.until_executed("POST /payments", 1).await;
    victim.0.kill();

    let refused = heir.ask(&request).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    let seconds = refused.retry_after();
    assert!((1..=2).contains(&seconds), "{seconds}");
    assert_eq!(heir.executions("POST /payments").await, 0);
    // The sleep is the subject of this test: after a lease one takes over.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let answers = join_all((0..10).map(|_| heir.ask(&request))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:#?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.problem(), "in-flight");
    }
    assert!(heir.ask(&request).await.is_replay());
    assert_eq!(heir.executions("POST /payments").await, 1);
    victim.0.restart();
    assert!(victim.ask(&request).await.is_replay());
    assert_eq!(victim.executions("POST /payments").await, 0);
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_finishes_a_payment_whose_client_is_gone() {
    for store in stores() {
        let mut server = Payments::start(&store.url, "");
        let request =
            Request::post("/payments", "k").json(r#"{"amount":1999,"currency":"EUR","sleep_ms":1000}"#);
        let client = request.send(server.address()).await;
        server.until_executed("POST /payments", 1).await;
        drop(client);
        server.0.stop("-TERM");
        server.0.restart();
        assert!(server.ask(&request).await.is_replay());
        assert_eq!(server.executions("POST /payments").await, 0);
    }
}

#[test]
fn a_server_that_is_asked_to_end_as_soon_as_it_says_that_it_listens_ends_in_order() {
    for _ in 0..10 {
        let mut command = crate::program(framework());
        let mut server =
            Ending(command.args(["--addr", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listening on 127.0.0.1:"), "{line}");
        let sent = Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(server.0.wait().unwrap().code(), Some(0));
    }
}

/// A process that does not outlive the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_store_that_goes_down_is_503_in_time_or_runs_unprotected_and_all_is_well_when_it_is_back() {
    // Redis writes to disk before it answers, because the test kills it.
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (closed, open) = (Payments::start(&redis.url(), ""), Payments::start(&redis.url(), "--fail-open"));
    let first = closed.ask(&payment("before")).await;
    redis.server().kill();
    let begin = Instant::now();
    let refused = closed.ask(&payment("down")).await;
    assert_eq!((refused.status, refused.problem()), (503, "store-unavailable".into()));
    assert!(refused.retry_after() >= 1 && begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    for _ in 0..2 {
        let answer = open.ask(&payment("down")).await;
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!((closed.executions("POST /payments").await, open.executions("POST /payments").await), (1, 2));
    redis.server().restart();
    let deadline = Instant::now() + Duration::from_secs(20);
    let again = loop {
        let again = closed.ask(&payment("before")).await;
        if again.status != 503 {
            break again;
        }
        assert!(Instant::now() < deadline, "the server did not find its store again");
    };
    assert_eq!((again.is_replay(), again.lasting()), (true, first.lasting()));
}

#[tokio::test]
async fn every_route_does_what_the_example_says() {
    let server = Payments::start("memory", "--max-body 2000 --max-response 1000");
    let patch = Request::new("PATCH", "/payments/7").header("Idempotency-Key", "p").json(PAYMENT);
    assert_eq!(server.ask(&patch).await.status, 200);
    assert!(server.ask(&patch).await.is_replay());
    assert_eq!(server.ask(&Request::post("/refunds", "r").json(PAYMENT)).await.status, 201);
    let first = server.ask(&payment("k")).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(first.text("location"), Some(format!("/payments/{id}").as_str()));
    assert_eq!(first.text("etag"), Some(format!("\"{id}\"").as_str()));
    assert_eq!(first.all("link").len(), 2);
    let echo = Request::post("/echo", "e").header("Content-Type", "x/y; z=1").body(b"\0\xff");
    for replay in [false, true] {
        let echoed = server.ask(&echo).await;
        assert_eq!((&echoed.body[..], echoed.text("content-type")), (&b"\0\xff"[..], Some("x/y; z=1")));
        assert_eq!(echoed.is_replay(), replay);
    }
    let counts = server.ask(&Request::new("GET", "/executions")).await.json();
    let expected = serde_json::json!({"PATCH /payments/{id}": 1, "POST /echo": 1, "POST /payments": 1, "POST /refunds": 1});
    assert_eq!(counts["executions"], expected);
    assert_eq!(server.ask(&Request::new("DELETE", "/executions")).await.status, 204);
    assert_eq!(server.executions("POST /echo").await, 0);

    let with = |key: &str, wish: &str| {
        Request::post("/payments", key).json(format!(r#"{{"amount":1,"currency":"EUR",{wish}}}"#))
    };
    assert_eq!(server.ask(&with("status", r#""status":402"#)).await.status, 402);
    assert!(server.ask(&with("status", r#""status":402"#)).await.is_replay());
    assert_eq!(server.ask(&with("500", r#""status":500"#)).await.status, 500);
    assert!(!server.ask(&with("500", r#""status":500"#)).await.is_replay());
    assert_eq!(server.ask(&with("panic", r#""panic":true"#)).await.problem(), "handler-failed");
    assert_eq!(server.ask(&with("padded", r#""body_bytes":1000"#)).await.body.len(), 1000);
    assert!(server.ask(&with("padded", r#""body_bytes":1000"#)).await.is_replay());
    assert_eq!(server.ask(&with("large", r#""body_bytes":1001"#)).await.body.len(), 1001);
    assert_eq!(server.ask(&with("large", r#""body_bytes":1001"#)).await.problem(), "response-not-stored");
    assert!(server.ask(&with("stream", r#""stream_ms":100"#)).await.body.starts_with(b"data: {"));
    assert_eq!(server.ask(&with("stream", r#""stream_ms":100"#)).await.problem(), "response-not-stored");
    assert_eq!(server.ask(&Request::post("/echo", "b").body(vec![0; 2001])).await.status, 413);
    assert_eq!(server.ask(&Request::new("POST", "/payments").json(PAYMENT)).await.problem(), "key-missing");
}

#[tokio::test]
async fn no_log_line_shows_a_key_a_tenant_or_a_receipt() {
    let server = Payments::start("memory", "--lease-ms 1000");
    // An amount that no time of a log line has in it.
    let amount = r#"{"amount":918273645,"currency":"EUR"}"#;
    let private = |key: &str| payment(key).json(amount).header("X-Tenant", "private-tenant");
    let first = server.ask(&private("private-key")).await;
    server.ask(&private("private-key")).await;
    server.ask(&private("private-key").body("other")).await;
    server.ask(&private("private\"key")).await;
    let log = server.0.log();
    let receipt = first.json()["id"].as_str().unwrap().to_owned();
    for secret in ["private", receipt.as_str(), "918273645"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    for said in ["claimed", "replayed", "mismatch"] {
        assert!(log.contains(&format!("event=\"{said}\"")), "{said}: {log}");
    }
}
