//! PostgreSQL, from the machine's own packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::certificate;
use crate::database::{CERTIFICATE, DatabaseServer, Engine, copy_of_template, give, tool, unprivileged};

/// One PostgreSQL server, with a superuser `postgres`, and a database on it: `postgres`, if the server is not
/// shared. A setting looks like `max_connections=20`.
pub type Postgres = DatabaseServer<PostgresEngine>;

/// The parts that only PostgreSQL has.
pub struct PostgresEngine;

impl Engine for PostgresEngine {
    const WORD: &str = "postgres";
    const FAST: &[&str] = &["fsync=off"];
    const SHARED: &[&str] = Self::FAST;
    const DATABASE: &str = "postgres";
    const HAS_DATABASE: bool = true;
    const FORCE: &str = " with (force)";

    fn make_data(folder: &Path) {
        let version = Command::new(tool("postgres")).arg("--version").output().unwrap().stdout;
        copy_of_template(&String::from_utf8_lossy(&version), &folder.join("data"), |made| {
            let mut initdb = unprivileged(made, "initdb");
            initdb
                .args(["-U", "postgres", "-A", "trust", "--no-sync", "--wal-segsize=1", "-D"])
                .arg(made.join("data"));
            initdb
        });
        give(folder);
    }

    fn make_certificate(folder: &Path) {
        let file = |name: &str| folder.join("data").join(name);
        certificate::make(&file("server.key"), &file("server.crt"), "DNS:localhost");
        give(&file("server.key"));
        fs::set_permissions(file("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::copy(file("server.crt"), folder.join(CERTIFICATE)).unwrap();
    }

    fn command(port: u16, folder: &Path, settings: &[String]) -> Command {
        let mut command = unprivileged(folder, "postgres");
        command.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]);
        // By default a killed server leaves its shared memory behind, in `/dev/shm`.
        command.args(["-c", "dynamic_shared_memory_type=mmap"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
        let tls = folder.join(CERTIFICATE).exists().then_some("ssl=on");
        for setting in settings.iter().map(String::as_str).chain(tls) {
            command.args(["-c", setting]);
        }
        command
    }

    fn client(port: u16, database: Option<&str>, statement: &str) -> Command {
        let mut client = Command::new(tool("psql"));
        client.args(["-X", "-q", "-A", "-t", "-c", statement]);
        client.arg(Self::url(port, database.unwrap_or(Self::DATABASE)));
        client
    }

    fn url(port: u16, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{database}")
    }
}

impl Postgres {
    /// Starts a standby of this server, which follows it by streaming replication until `pg_promote()`.
    pub fn standby(&self) -> Self {
        let prepare = |folder: &Path| {
            give(folder);
            let mut copy = unprivileged(folder, "pg_basebackup");
            copy.args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync", "--dbname", &self.url()]);
            let output = copy.arg("--pgdata").arg(folder.join("data")).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        Self::prepared(prepare, PostgresEngine::FAST)
    }

    /// With `true`, the transactions that begin from now on are read-only, in all sessions. With `false`,
    /// they may write again.
    pub fn read_only(&self, only: bool) {
        let _own = self.own();
        let _ = self.sql(&format!("alter system set default_transaction_read_only = {only}"));
        let _ = self.sql("select pg_reload_conf()");
    }

    /// Limits the size of every file of the server, as if its disk were full; `None` removes the limit. A
    /// limit of 16 MiB or more does not affect the server's transaction log.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let soft = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let server = self.own().id().expect("it runs").to_string();
        // The sessions are child processes of the server. New sessions inherit the server's limit.
        let sessions = Command::new("pgrep").args(["-P", &server]).output().unwrap().stdout;
        for id in String::from_utf8_lossy(&sessions).lines().chain([&*server]) {
            // The command runs as the server's own user, who may change the limit without a privilege, up to
            // the hard limit.
            let mut command = unprivileged(self.own().folder(), "prlimit");
            let done = command.args(["--pid", id]).arg(format!("--fsize={soft}:")).output().unwrap();
            let gone = !Path::new("/proc").join(id).exists();
            assert!(done.status.success() || gone, "{}", String::from_utf8_lossy(&done.stderr));
        }
    }
}
