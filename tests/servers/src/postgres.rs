//! PostgreSQL, from the machine's own packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::certificate;
use crate::database::{Process, copy_of_template, find, give, tool, unprivileged};
use crate::installed::{missing, startable};
use crate::process::{PATIENCE, Recipe, Server, until};
use crate::shared::{Shared, unique};

/// One PostgreSQL server, with a superuser `postgres` without a password, and a database on it.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    database: String,
}

impl Postgres {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// What to do, in one line, where it is not installed.
    pub fn installed() -> Result<(), String> {
        let all = ["initdb", "postgres", "psql"].iter().all(|tool| find(tool).is_some());
        startable(all.then_some(()).ok_or_else(|| missing("PostgreSQL", "postgres")))
    }

    /// A new database on a server that other tests use too, for tests that neither stop nor configure it. The database is dropped
    /// with the value.
    #[must_use]
    pub fn shared() -> Self {
        let shared = Shared::join("postgres", new_cluster, &recipe(&["fsync=off"]));
        let mut server = Self { process: Process::Shared(shared), database: "postgres".to_owned() };
        assert!(server.is_ready(), "PostgreSQL did not start");
        let database = unique();
        let _ = server.sql(&format!("create database {database}"));
        server.database = database;
        server
    }

    /// Starts a server that does not wait for the disk: its data survives `kill -9` but not a power cut.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&["fsync=off"])
    }

    /// Starts a server with these settings, such as `["max_connections=20"]`, and the machine's defaults for the rest:
    /// it waits for the disk.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::prepared(new_cluster, settings)
    }

    /// Starts a server with TLS and a self-signed certificate for `localhost`: [`certificate`](Self::certificate).
    #[must_use]
    pub fn with_tls() -> Self {
        let prepare = |folder: &Path| {
            new_cluster(folder);
            let file = |name: &str| folder.join("data").join(name);
            certificate::make(&file("server.key"), &file("server.crt"), "DNS:localhost");
            give(&file("server.key"));
            fs::set_permissions(file("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::copy(file("server.crt"), folder.join("certificate.pem")).unwrap();
        };
        Self::prepared(prepare, &["fsync=off", "ssl=on"])
    }

    /// Starts a standby of this server, which follows it by streaming replication until `pg_promote()`.
    #[must_use]
    pub fn standby(&self) -> Self {
        let prepare = |folder: &Path| {
            give(folder);
            let mut copy = unprivileged(folder, "pg_basebackup");
            copy.args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync", "--dbname", &self.url()]);
            let output = copy.arg("--pgdata").arg(folder.join("data")).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        Self::prepared(prepare, &["fsync=off"])
    }

    /// The certificate of a server with TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.process.own().folder().join("certificate.pem")
    }

    fn prepared(prepare: impl FnOnce(&Path), settings: &[&str]) -> Self {
        let server = Server::start(prepare, recipe(settings));
        let mut postgres = Self { process: Process::Own(server), database: "postgres".to_owned() };
        assert!(postgres.is_ready(), "PostgreSQL did not start: {}", postgres.process.own().log());
        postgres
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.process.port()
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Starts it again after it was killed or stopped, and returns when it has recovered.
    pub fn restart(&mut self) {
        let begin = Instant::now();
        loop {
            self.server().restart();
            if self.is_ready() {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "PostgreSQL did not start again: {}",
                self.process.own().log()
            );
        }
    }

    /// Waits until it accepts statements, which it does some time after it listens, or has ended: a backend of a killed server
    /// may still listen, and has its memory, without which the next one does not start.
    fn is_ready(&mut self) -> bool {
        let mut is_ready = false;
        until("PostgreSQL is ready or has ended", || {
            is_ready = self.psql("select 1").status.success();
            let has_ended = match &mut self.process {
                Process::Own(server) => server.has_ended(),
                Process::Shared(_) => false,
            };
            is_ready || has_ended
        });
        is_ready
    }

    fn psql(&self, statement: &str) -> Output {
        let url = self.url();
        Command::new(tool("psql")).args(["-X", "-q", "-A", "-t", "-c", statement, &url]).output().unwrap()
    }

    /// `postgres://postgres@127.0.0.1:PORT/DATABASE`; the database of a server that is not shared is `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", self.port(), self.database)
    }

    /// The output of one statement, run by `psql`: values are separated by `|`, rows by newlines.
    #[must_use]
    pub fn sql(&self, statement: &str) -> String {
        let output = self.psql(statement);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Makes all transactions that begin from now on, in all sessions, read-only; or lets them write again.
    pub fn read_only(&self, only: bool) {
        let _own = self.process.own();
        let _ = self.sql(&format!("alter system set default_transaction_read_only = {only}"));
        let _ = self.sql("select pg_reload_conf()");
    }

    /// Limits the size of every file of the server, as if its disk were full; `None` removes the limit. A limit of 16
    /// MiB or more does not affect its transaction log.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let soft = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let server = self.process.own().id().expect("it runs").to_string();
        // Its sessions are child processes; new ones inherit its limit.
        for id in children(&server).chain([server.clone()]) {
            // As the server's own user, who needs no privilege for it, up to the hard limit.
            let mut command = unprivileged(self.process.own().folder(), "prlimit");
            let done = command.args(["--pid", &id]).arg(format!("--fsize={soft}:")).output().unwrap();
            let gone = !Path::new("/proc").join(&id).exists();
            assert!(done.status.success() || gone, "{}", String::from_utf8_lossy(&done.stderr));
        }
    }

    /// Its process: `stop("-INT")` is a fast shutdown.
    #[must_use]
    pub fn server(&mut self) -> &mut Server {
        self.process.own_mut()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.is_shared() && self.database != "postgres" {
            let database = std::mem::replace(&mut self.database, "postgres".to_owned());
            // A failure must not hide that of the test; the server ends after the run.
            let _ = self.psql(&format!("drop database {database} with (force)"));
        }
    }
}

/// The command of a server with these settings.
fn recipe(settings: &[&str]) -> Recipe {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    Box::new(move |port, folder| {
        let mut command = unprivileged(folder, "postgres");
        command.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
        for setting in &settings {
            command.args(["-c", setting]);
        }
        command
    })
}

/// The processes that this one started.
fn children(parent: &str) -> impl Iterator<Item = String> {
    let parent = format!("PPid:\t{parent}\n");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(move |process| {
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        status.contains(&parent).then(|| process.file_name().to_string_lossy().into_owned())
    })
}

/// Makes a data folder.
fn new_cluster(folder: &Path) {
    let data = folder.join("data");
    let version = Command::new(tool("postgres")).arg("--version").output().unwrap().stdout;
    copy_of_template(&String::from_utf8_lossy(&version), &data, |made| {
        let mut initdb = unprivileged(made, "initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(made.join("data"));
        initdb
    });
    give(folder);
}
