//! MariaDB, from the machine's own packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::certificate;
use crate::database::{Process, copy_of_template, find, give, tool, unprivileged};
use crate::installed::{missing, startable};
use crate::process::{Recipe, Server, until};
use crate::shared::{Shared, unique};

/// One MariaDB server, with a user `root` without a password, and an empty database on it.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    database: String,
}

/// The database of a server that is not shared.
const DATABASE: &str = "idem";

impl MariaDb {
    /// Whether it can be started.
    ///
    /// # Errors
    ///
    /// What to do, in one line, where it is not installed.
    pub fn installed() -> Result<(), String> {
        let all = ["mariadb", "mariadb-install-db", "mariadbd"].iter().all(|tool| find(tool).is_some());
        startable(all.then_some(()).ok_or_else(|| missing("MariaDB", "mysql")))
    }

    /// A new database on a server that other tests use too, for tests that neither stop nor configure it. The database is dropped
    /// with the value.
    #[must_use]
    pub fn shared() -> Self {
        let recipe = recipe(&["--innodb-flush-log-at-trx-commit=2", "--max-connections=400"], |_| Vec::new());
        let shared = Shared::join("mariadb", new_data, &recipe);
        Self { process: Process::Shared(shared), database: unique() }.ready()
    }

    /// Starts a server that does not wait for the disk: its data survives `kill -9` but not a power cut.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&["--innodb-flush-log-at-trx-commit=2"])
    }

    /// Starts a server with these options, such as `["--max-connections=20"]`, and its own defaults for the rest: it
    /// waits for the disk.
    #[must_use]
    pub fn with(options: &[&str]) -> Self {
        Self::prepared(new_data, options, |_| Vec::new())
    }

    /// Starts a server with TLS and a self-signed certificate for `localhost`: [`certificate`](Self::certificate).
    #[must_use]
    pub fn with_tls() -> Self {
        let prepare = |folder: &Path| {
            certificate::make(&folder.join("key.pem"), &folder.join("certificate.pem"), "DNS:localhost");
            new_data(folder);
        };
        Self::prepared(prepare, &["--innodb-flush-log-at-trx-commit=2"], |folder| {
            let file = |option: &str, name: &str| format!("--ssl-{option}={}", folder.join(name).display());
            vec![file("cert", "certificate.pem"), file("key", "key.pem")]
        })
    }

    /// The certificate of a server with TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.process.own().folder().join("certificate.pem")
    }

    fn prepared(
        prepare: impl FnOnce(&Path),
        options: &[&str],
        in_folder: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let process = Process::Own(Server::start(prepare, recipe(options, in_folder)));
        Self { process, database: DATABASE.to_owned() }.ready()
    }

    /// Waits until it accepts statements, and creates the database.
    fn ready(self) -> Self {
        self.until_ready();
        let _ = self.sql(&format!("create database if not exists {}", self.database));
        self
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
        self.server().restart();
        self.until_ready();
    }

    /// The server listens before it accepts statements.
    fn until_ready(&self) {
        until("MariaDB is ready", || self.client("", "select 1").status.success());
    }

    fn client(&self, database: &str, statement: &str) -> Output {
        let mut command = Command::new(tool("mariadb"));
        command.args(["--no-defaults", "--host=127.0.0.1", "--protocol=tcp", "--user=root", "--skip-ssl"]);
        command.args(["--batch", "--skip-column-names", "--binary-as-hex"]);
        command.arg(format!("--port={}", self.port())).arg(format!("--execute={statement}"));
        command.arg(format!("--database={database}")).output().unwrap()
    }

    /// `mysql://root@127.0.0.1:PORT/DATABASE`; the database of a server that is not shared is `idem`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/{}", self.port(), self.database)
    }

    /// The output of statements, run by the command `mariadb`: values are separated by `|`, rows by newlines.
    #[must_use]
    pub fn sql(&self, statement: &str) -> String {
        let database = if statement.starts_with("create database") { "" } else { &self.database };
        let output = self.client(database, statement);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().replace('\t', "|")
    }

    /// Its process: `stop("-TERM")` is an orderly shutdown.
    #[must_use]
    pub fn server(&mut self) -> &mut Server {
        self.process.own_mut()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if self.process.is_shared() {
            // A failure must not hide that of the test; the server ends after the run.
            let _ = self.client("", &format!("drop database {}", self.database));
        }
    }
}

/// The command of a server with these options, and those that depend on its folder.
fn recipe(options: &[&str], in_folder: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static) -> Recipe {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    Box::new(move |port, folder| {
        let mut command = unprivileged(folder, "mariadbd");
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=64M"]);
        command.arg(format!("--datadir={}", folder.join("data").display()));
        command.arg(format!("--socket={}", folder.join("s").display()));
        command.arg(format!("--tmpdir={}", folder.display()));
        command.arg(format!("--port={port}")).args(&options).args(in_folder(folder));
        command
    })
}

/// Makes a data folder.
fn new_data(folder: &Path) {
    let version = Command::new(tool("mariadbd")).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8_lossy(&version);
    let version = version.split_once("Ver ").map_or("", |(_, version)| version);
    let version = version.split_whitespace().next().unwrap_or_default();
    copy_of_template(&format!("mariadb-{version}"), &folder.join("data"), |made| {
        let mut install = unprivileged(made, "mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(["--skip-name-resolve", "--innodb-log-file-size=64M"]);
        install.arg(format!("--datadir={}", made.join("data").display()));
        // Two that run at once would remove each other's temporary tables.
        install.env("TMPDIR", made);
        install
    });
    give(folder);
}
