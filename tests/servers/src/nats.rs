//! NATS with JetStream, from the server that `scripts/servers nats` installs.

use std::path::PathBuf;
use std::process::Command;

use crate::installed::{in_target, required};
use crate::process::Server;

/// One node with JetStream, whose files survive a restart.
pub struct Nats(Server);

impl Nats {
    /// Starts an empty node.
    pub fn start() -> Self {
        Self(Server::start(|port, folder| {
            let mut command = Command::new(program());
            command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(folder);
            command
        }))
    }

    /// `nats://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.0.port())
    }

    /// The node's process.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

fn program() -> PathBuf {
    required(in_target("nats/embedded_nats/bin/nats-server"), "NATS", "nats")
}
