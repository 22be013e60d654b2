//! Tests of the example `payments`, whose servers are processes.

#![allow(clippy::duplicate_mod, reason = "the same cases run on each framework")]

#[path = "cases.rs"]
mod actix;
#[path = "cases.rs"]
mod axum;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use idem_test_servers::Server;
use idem_test_servers::web::{Answer, Request};

const PAYMENT: &str = r#"{"amount":1999,"currency":"EUR"}"#;

struct Payments(Server);

impl Payments {
    fn start(framework: &'static str, store: &str, options: &'static str) -> Self {
        let store = store.to_owned();
        let recipe = move |port: u16, _: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_payments"));
            let address = format!("127.0.0.1:{port}");
            command.args(["--framework", framework, "--addr", &address, "--store", &store]);
            command.args(options.split_whitespace());
            command
        };
        Self(Server::start(recipe))
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.0.port()))
    }

    async fn ask(&self, request: &Request) -> Answer {
        request.ask(self.address()).await
    }

    /// How many payments this process made.
    async fn executions(&self) -> u64 {
        let counts = self.ask(&Request::new("GET", "/executions")).await.json();
        counts["executions"]["POST /payments"].as_u64().unwrap_or(0)
    }

    async fn until_executed(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.executions().await < 1 {
            assert!(Instant::now() < deadline, "nothing was paid in 20 s");
        }
    }
}
