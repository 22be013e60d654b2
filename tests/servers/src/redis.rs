//! Redis, from the machine's `redis-server`, or Valkey where `IDEM_REDIS_SERVER` names its program.

use std::process::Command;

use crate::process::Server;

/// One Redis node, without persistence unless asked for.
#[derive(Debug)]
pub struct Redis(Server);

impl Redis {
    /// A node that keeps nothing on disk.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A node with these further arguments, such as `["--appendonly", "yes"]`.
    #[must_use]
    pub fn with(arguments: &[&str]) -> Self {
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

pub(crate) fn program() -> String {
    std::env::var("IDEM_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}
