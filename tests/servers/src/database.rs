//! A database server. It runs as a user that is not root, on a copy of a data folder that was made earlier.
//! Its process belongs to one test, or several tests share it.

use std::fs;
use std::iter;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::installed::{in_path_or, required};
use crate::process::{PATIENCE, Recipe, Server, until};
use crate::shared::{Shared, unique};

/// The user id of Debian's `nobody`. If the tests run as root, the servers run as this user, because they
/// refuse to run as root.
const NOBODY: u32 = 65_534;

/// The name of the certificate's file in the folder of a server with TLS.
pub(crate) const CERTIFICATE: &str = "certificate.pem";

/// The message of a panic when a test tries to disturb a shared server.
const OTHERS: &str = "other tests use this server: start one";

/// What differs between database servers.
pub trait Engine: 'static {
    /// The server's name in `scripts/servers`.
    const WORD: &str;
    /// The settings with which the server does not wait for the disk.
    const FAST: &[&str];
    /// The settings of a server that tests share.
    const SHARED: &[&str];
    /// The name of the database on a server that is not shared.
    const DATABASE: &str;
    /// Whether a new server has the database [`DATABASE`](Self::DATABASE).
    const HAS_DATABASE: bool;
    /// The words after `drop database NAME` that make the server drop a database that is in use.
    const FORCE: &str;

    /// Makes a data folder.
    fn make_data(folder: &Path);

    /// Makes a key and the file `certificate.pem` for `localhost`, beside the data.
    fn make_certificate(folder: &Path);

    /// The command that starts the server, with TLS if the folder has a certificate.
    fn command(port: u16, folder: &Path, settings: &[String]) -> Command;

    /// The command of the client that runs a statement: in `database`, or outside of all databases of tests
    /// if `database` is `None`.
    fn client(port: u16, database: Option<&str>, statement: &str) -> Command;

    /// The URL of a database.
    fn url(port: u16, database: &str) -> String;
}

/// One server, with an administrator who has no password, and a database on it.
pub struct DatabaseServer<E: Engine> {
    port: u16,
    /// The server's process; `None` if other tests use the server too.
    process: Option<Server>,
    _shared: Option<Shared>,
    database: String,
    engine: PhantomData<E>,
}

impl<E: Engine> DatabaseServer<E> {
    /// A new database on a server that other tests use too, for tests that neither stop nor configure the
    /// server. The database is dropped with the value.
    pub fn shared() -> Self {
        let shared = Shared::join(E::WORD, E::make_data, &recipe::<E>(E::SHARED));
        Self::of(shared.port, None, Some(shared), unique()).with_database()
    }

    /// Starts a server that does not wait for the disk: its data survives `kill -9` but not a power cut.
    pub fn start() -> Self {
        Self::fast(&[])
    }

    /// Starts a server with these settings that does not wait for the disk.
    pub fn fast(settings: &[&str]) -> Self {
        Self::with(&[E::FAST, settings].concat())
    }

    /// Starts a server with these settings, and defaults for all others. Unless a setting says otherwise, the
    /// server waits for the disk.
    pub fn with(settings: &[&str]) -> Self {
        Self::prepared(E::make_data, settings)
    }

    /// Starts a server with TLS and a self-signed certificate for `localhost`:
    /// [`certificate`](Self::certificate).
    pub fn with_tls() -> Self {
        let prepare = |folder: &Path| {
            E::make_data(folder);
            E::make_certificate(folder);
        };
        Self::prepared(prepare, E::FAST)
    }

    /// The certificate of a server with TLS.
    pub fn certificate(&self) -> PathBuf {
        self.own().folder().join(CERTIFICATE)
    }

    pub(crate) fn prepared(prepare: impl FnOnce(&Path), settings: &[&str]) -> Self {
        let process = Server::start_in(prepare, recipe::<E>(settings));
        let server = Self::of(process.port(), Some(process), None, E::DATABASE.to_owned());
        if E::HAS_DATABASE { server } else { server.with_database() }
    }

    fn of(port: u16, process: Option<Server>, _shared: Option<Shared>, database: String) -> Self {
        let mut server = Self { port, process, _shared, database, engine: PhantomData };
        assert!(server.is_ready(), "{} did not start: {}", E::WORD, server.log());
        server
    }

    fn with_database(self) -> Self {
        let _ = self.output(None, &format!("create database {}", self.database));
        self
    }

    /// Starts the server again after it was killed or stopped, and returns when it has recovered.
    pub fn restart(&mut self) {
        let begin = Instant::now();
        loop {
            self.server().restart();
            if self.is_ready() {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{} did not start again: {}", E::WORD, self.log());
        }
    }

    /// Waits until the server accepts statements, or has ended. Returns whether it accepts statements. A
    /// server accepts statements only some time after it listens. A server ends at once if a process of an
    /// earlier, killed server still listens or still has the shared memory.
    fn is_ready(&mut self) -> bool {
        let mut is_ready = false;
        until("the server is ready or has ended", || {
            is_ready = self.run(None, "select 1").status.success();
            is_ready || self.process.as_mut().is_some_and(Server::has_ended)
        });
        is_ready
    }

    fn run(&self, database: Option<&str>, statement: &str) -> Output {
        E::client(self.port(), database, statement).output().unwrap()
    }

    fn output(&self, database: Option<&str>, statement: &str) -> String {
        let output = self.run(database, statement);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().replace('\t', "|")
    }

    /// The output of statements, run by the server's client: values are separated by `|`, rows by newlines.
    pub fn sql(&self, statement: &str) -> String {
        self.output(Some(&self.database), statement)
    }

    /// The port that the server listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The URL of the database, with the name of the administrator.
    pub fn url(&self) -> String {
        E::url(self.port(), &self.database)
    }

    fn log(&self) -> String {
        self.process.as_ref().map(Server::log).unwrap_or_default()
    }

    /// The server's process, which no other test uses.
    pub(crate) fn own(&self) -> &Server {
        self.process.as_ref().expect(OTHERS)
    }

    /// The server's process. `stop("-INT")` is a fast shutdown of PostgreSQL, and `stop("-TERM")` is an
    /// orderly shutdown of MariaDB.
    pub fn server(&mut self) -> &mut Server {
        self.process.as_mut().expect(OTHERS)
    }
}

impl<E: Engine> Drop for DatabaseServer<E> {
    fn drop(&mut self) {
        if self.process.is_none() {
            // A failure here must not hide the failure of the test. The server ends after the run anyway.
            let _ = self.run(None, &format!("drop database {}{}", self.database, E::FORCE));
        }
    }
}

/// The command of a server with these settings.
fn recipe<E: Engine>(settings: &[&str]) -> Recipe {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    Box::new(move |port, folder| E::command(port, folder, &settings))
}

/// A command that runs a program as a user other than root.
pub(crate) fn unprivileged(folder: &Path, program: &str) -> Command {
    let mut command;
    if is_root(folder) {
        // A change of user clears the parent-death signal that our own wrapper set, so it is set again here.
        command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "--pdeathsig", "KILL", "--"]).arg(tool(program));
    } else {
        command = Command::new(tool(program));
    }
    command
}

/// Whether this process runs as root. If so, the owner of the server's folder is root, or `NOBODY` after
/// [`give`].
fn is_root(folder: &Path) -> bool {
    matches!(fs::metadata(folder).unwrap().uid(), 0 | NOBODY)
}

/// The path of the program with this name, in Debian's folders if it is not on the `PATH`.
pub(crate) fn tool(name: &str) -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = installed.map(|version| version.path().join("bin"));
    let folders = iter::once(PathBuf::from("/usr/sbin")).chain(folders);
    let word = match name {
        "pgbouncer" => name,
        _ if name.starts_with("mariadb") => "mysql",
        _ => "postgres",
    };
    required(in_path_or(name, folders), name, word)
}

/// Gives a folder, with all in it, to the user that a server runs as.
pub(crate) fn give(folder: &Path) {
    if is_root(folder) {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(folder).status().unwrap().success());
    }
}

/// Copies a template to `data`, because that is much faster than making a new data folder. If there is no
/// template for this version of the program yet, makes it first. `make` gets another folder, and returns the
/// command that makes the data folder `data` in it.
pub(crate) fn copy_of_template(version: &str, data: &Path, make: impl FnOnce(&Path) -> Command) {
    let name = version.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let template = home.join(name.trim_matches('-'));
    if !template.exists() {
        fs::create_dir_all(&home).unwrap();
        // The server's user may have no access to `home`. So the data is made elsewhere, copied to `home`,
        // and then renamed as a whole.
        let made = tempfile::Builder::new().prefix("idem-data-").tempdir().unwrap();
        give(made.path());
        let output = make(made.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        let copied = tempfile::tempdir_in(&home).unwrap();
        copy(&made.path().join("data"), &copied.path().join("data"));
        // This fails if another process has made the same template in the meantime. Then the template of the
        // other process is used.
        let _ = fs::rename(copied.path().join("data"), &template);
    }
    copy(&template, data);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}
