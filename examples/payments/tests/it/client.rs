//! `idem-client` against the example. The rig `clients` has connections that break, and each framework.

use idem_client::{IdempotencyMiddleware, Key, Policy, Problem};
use reqwest_middleware::ClientBuilder;
use serde_json::Value;

use crate::{PAYMENT, Payments};

#[tokio::test]
async fn a_derived_key_gives_the_first_answer_to_a_client_of_another_life_and_is_for_one_payment() {
    let payments = Payments::start("axum", "memory", "");
    let pay = async |body: &'static str| {
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(IdempotencyMiddleware::new(Policy::new()))
            .build();
        let request = client.post(format!("http://{}/payments", payments.address()));
        let key = Key::derived(["order", "42", "charge"]);
        let request = request.with_extension(key).header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.bytes().await.unwrap())
    };
    let first = pay(PAYMENT).await;
    assert_eq!((first.0, pay(PAYMENT).await), (201, first.clone()));
    assert!(serde_json::from_slice::<Value>(&first.1).unwrap()["id"].is_string());
    let (status, other) = pay(r#"{"amount":1,"currency":"EUR"}"#).await;
    assert_eq!((status, Problem::from_json(&other)), (422, Some(Problem::KeyReused)));
    assert_eq!(payments.executions().await, 1);
}
