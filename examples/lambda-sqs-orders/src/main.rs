//! The Lambda binary. `ORDERS_TABLE` has the table's name, and `ORDERS_DEAD_LETTERS`, if it is set, the URL
//! of the queue for messages that can never be handled.

use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use idem::DynamoDbStore;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use lambda_sqs_orders::{App, DeadLetters, configuration, handle};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = aws_sdk_dynamodb::Client::new(&configuration().await);
    let dead_letters = match std::env::var("ORDERS_DEAD_LETTERS") {
        Ok(queue) => Some(DeadLetters { sqs: aws_sdk_sqs::Client::new(&configuration().await), queue }),
        Err(_) => None,
    };
    let table = std::env::var("ORDERS_TABLE").map_err(|_| "set ORDERS_TABLE to the name of the table")?;
    let app = App {
        store: DynamoDbStore::new(client, &table),
        ledger: "/tmp/orders.txt".into(),
        answers: None,
        dead_letters,
        work: Duration::ZERO,
        lease: Duration::from_secs(30),
    };
    let app = &app;
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| handle(app, event))).await
}
