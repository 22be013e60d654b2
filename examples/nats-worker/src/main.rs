//! The demo under a unique name: cargo builds the programs of all crates into one folder, and tests must find theirs.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    worker_demo::main::<nats_worker::OnNats>().await
}
