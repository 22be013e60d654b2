//! Runs workers on this machine, and kills them.
//!
//! `cargo run -p kafka-worker --bin demo -- [--messages 10000] [--duplicates 30] [--workers 3] [--kill-every MS]
//! [--store redis]`
//!
//! Starts a broker, a store and workers; sends orders, `--duplicates` percent of them twice; kills a worker every
//! `--kill-every` milliseconds; checks every order, prints one line of JSON, and ends with 1 on a violation.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    worker_demo::main::<kafka_worker::OnKafka>().await
}
