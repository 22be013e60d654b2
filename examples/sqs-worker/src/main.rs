//! The demo, under a name that no other crate's program has: tests of several crates are built into one folder.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    worker_demo::main::<sqs_worker::OnSqs>().await
}
