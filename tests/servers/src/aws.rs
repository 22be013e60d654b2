//! DynamoDB, SQS and S3 of the emulator `ministack`. `scripts/servers aws` installs the emulator.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::installed::{in_target, required};
use crate::process::Server;

/// An emulator of DynamoDB, SQS and S3 that accepts any credentials and loses all data when it ends.
pub struct Aws(Server);

impl Aws {
    /// Starts an empty emulator.
    pub fn start() -> Self {
        Self(Server::start(|port, folder| {
            let mut command = Command::new(program());
            command.env("GATEWAY_PORT", port.to_string()).env("BIND_HOST", "127.0.0.1");
            command.env("TMPDIR", folder);
            command
        }))
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    pub(crate) fn make_bucket(&self, name: &str) {
        let host = format!("127.0.0.1:{}", self.0.port());
        let mut connection = TcpStream::connect(&host).unwrap();
        let head =
            format!("PUT /{name} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The emulator's process.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

fn program() -> PathBuf {
    required(in_target("venv/bin/ministack"), "ministack, an emulator of DynamoDB and SQS,", "aws")
}
