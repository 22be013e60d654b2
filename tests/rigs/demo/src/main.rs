//! Runs workers on a message broker, kills them, and checks every order.
//!
//! `cargo run --release -p demo -- --broker nats|rabbitmq|kafka|sqs|lambda|apalis [--messages 10000]
//! [--duplicates 30] [--workers 3] [--kill-every MS] [--store redis] [--store-stop SECONDS] [--broker-stop
//! SECONDS] [--quorum]`
//!
//! Starts a broker, a store and workers. Sends orders, and `--duplicates` percent more as copies. Kills a
//! worker every `--kill-every` milliseconds. Checks every order, prints one line of JSON, and ends with 1 on
//! a violation. With `--broker lambda` the workers do what AWS Lambda does with a queue of SQS: they call a
//! function with batches of messages.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    demo::main().await
}
