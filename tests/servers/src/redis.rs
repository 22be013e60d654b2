//! Redis, from the machine's `redis-server`, or Valkey if `IDEM_REDIS_SERVER` names its program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::certificate;
use crate::installed::{in_path_or, required};
use crate::process::Server;

/// One Redis node, without persistence unless its arguments enable it.
pub struct Redis(Server);

impl Redis {
    /// Starts a node that keeps nothing on disk.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a node with these additional arguments, such as `["--appendonly", "yes"]`.
    pub fn with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self(Server::start(move |port, folder| {
            let mut command = Command::new(program());
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &port.to_string()]).arg("--dir").arg(folder);
            command.args(&arguments);
            command
        }))
    }

    /// Starts a node that accepts only TLS, with a certificate for 127.0.0.1. A client that verifies it must
    /// trust `certificate.pem` in the node's folder.
    pub fn with_tls() -> Self {
        let prepare = |folder: &Path| {
            certificate::make(&folder.join("key.pem"), &folder.join("certificate.pem"), "IP:127.0.0.1");
        };
        Self(Server::start_in(prepare, |port, folder| {
            let mut command = Command::new(program());
            command.args(["--bind", "127.0.0.1", "--save", "", "--port", "0", "--dir"]).arg(folder);
            command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
            command.arg("--tls-cert-file").arg(folder.join("certificate.pem"));
            command.arg("--tls-key-file").arg(folder.join("key.pem"));
            command.arg("--tls-ca-cert-file").arg(folder.join("certificate.pem"));
            command
        }))
    }

    /// `redis://127.0.0.1:PORT/`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.0.port())
    }

    /// The port that the node listens on.
    pub const fn port(&self) -> u16 {
        self.0.port()
    }

    /// The node's process.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

pub(crate) fn program() -> PathBuf {
    let name = std::env::var("IDEM_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    required(in_path_or(&name, []), "Redis", "redis")
}
