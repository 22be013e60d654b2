//! The Lambda binary. The table's name is in `ORDERS_TABLE`.

use std::time::Duration;

use aws_lambda_events::event::sqs::SqsEvent;
use idem::DynamoDbStore;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use lambda_sqs_orders::{App, configuration, handle};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = aws_sdk_dynamodb::Client::new(&configuration().await);
    let table = std::env::var("ORDERS_TABLE").map_err(|_| "set ORDERS_TABLE to the name of the table")?;
    let app = App {
        store: DynamoDbStore::new(client, &table),
        ledger: "/tmp/orders.txt".into(),
        answers: None,
        work: Duration::ZERO,
        lease: Duration::from_secs(30),
    };
    let app = &app;
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| handle(app, event))).await
}
