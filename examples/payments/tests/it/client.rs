//! `idem-client` against the example `payments`. The rig `clients` has connections that break.

use std::path::Path;

use idem_client::{IdempotencyMiddleware, Key, Policy, Problem};
use idem_test_servers::Server;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde_json::Value;

/// The server, on a store of its own.
struct Payments(Server);

impl Payments {
    fn start() -> Self {
        let recipe = |port: u16, _: &Path| {
            let mut command = crate::program("axum");
            command.args(["--addr", &format!("127.0.0.1:{port}")]);
            command
        };
        Self(Server::start(|_| {}, recipe))
    }

    async fn executions(&self) -> u64 {
        let url = format!("http://127.0.0.1:{}/executions", self.0.port());
        let counts = reqwest::get(url).await.unwrap().bytes().await.unwrap();
        let counts: Value = serde_json::from_slice(&counts).unwrap();
        counts["executions"]["POST /payments"].as_u64().unwrap_or(0)
    }
}

fn client() -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(IdempotencyMiddleware::new(Policy::new())).build()
}

/// Pays, and returns the receipt's number.
async fn pay(client: &ClientWithMiddleware, url: &str, key: Option<Key>, body: &'static str) -> String {
    let mut request =
        client.post(format!("{url}/payments")).header("content-type", "application/json").body(body);
    if let Some(key) = key {
        request = request.with_extension(key);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201);
    let receipt: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    receipt["id"].as_str().unwrap().to_owned()
}

const PAYMENT: &str = r#"{"amount":1999,"currency":"EUR"}"#;

#[tokio::test]
async fn a_derived_key_gives_the_first_answer_to_a_client_of_another_life() {
    let payments = Payments::start();
    let url = format!("http://127.0.0.1:{}", payments.0.port());
    let key = || Some(Key::derived(["order", "42", "charge"]));
    let first = pay(&client(), &url, key(), PAYMENT).await;
    assert_eq!(pay(&client(), &url, key(), PAYMENT).await, first);
    assert_eq!(payments.executions().await, 1);
    // The same key for another payment is an error, which the client returns and does not repeat.
    let request = client().post(format!("{url}/payments")).header("content-type", "application/json");
    let other =
        request.with_extension(key().unwrap()).body(r#"{"amount":1,"currency":"EUR"}"#).send().await.unwrap();
    assert_eq!(other.status(), 422);
    assert_eq!(Problem::from_json(&other.bytes().await.unwrap()), Some(Problem::KeyReused));
}

#[tokio::test]
async fn a_payment_that_is_in_flight_is_waited_for() {
    let payments = Payments::start();
    let url = format!("http://127.0.0.1:{}", payments.0.port());
    let slow = r#"{"amount":1999,"currency":"EUR","sleep_ms":1500}"#;
    let key = || Some(Key::new("in flight"));
    let (one, two) = (client(), client());
    let (first, second) = tokio::join!(pay(&one, &url, key(), slow), pay(&two, &url, key(), slow));
    assert_eq!((first == second, payments.executions().await), (true, 1));
}
