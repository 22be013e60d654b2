//! Redis, from the machine's `redis-server`, or Valkey where `IDEM_REDIS_SERVER` names its program.

use std::path::Path;
use std::process::Command;

use crate::installed::{is_there, missing};
use crate::process::Server;

/// One Redis node, without persistence unless asked for.
#[derive(Debug)]
pub struct Redis(Server);

impl Redis {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// What to do, in one line, where it is not installed.
    pub fn installed() -> Result<(), String> {
        if is_there(&program()) { Ok(()) } else { Err(missing("Redis", "redis")) }
    }

    /// A node that keeps nothing on disk.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A node with these further arguments, such as `["--appendonly", "yes"]`.
    #[must_use]
    pub fn with(arguments: &[&str]) -> Self {
        if let Err(missing) = Self::installed() {
            panic!("{missing}");
        }
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self(Server::start(
            |_| {},
            move |port, folder| {
                let mut command = Command::new(program());
                command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command.args(["--port", &port.to_string()]).arg("--dir").arg(folder);
                command.args(&arguments);
                command
            },
        ))
    }

    /// A node that takes TLS only, with a certificate for 127.0.0.1 that `certificate.pem` in its folder
    /// vouches for.
    #[must_use]
    pub fn with_tls() -> Self {
        Self(Server::start(certificate, |port, folder| {
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
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.0.port())
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.0.port()
    }

    /// Its process.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

fn certificate(folder: &Path) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]);
    command.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    command.arg("-keyout").arg(folder.join("key.pem")).arg("-out").arg(folder.join("certificate.pem"));
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

pub(crate) fn program() -> String {
    std::env::var("IDEM_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}
