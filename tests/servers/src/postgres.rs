//! PostgreSQL, from the machine's own packages.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::certificate;
use crate::process::{Server, until};

/// PostgreSQL refuses to run as root; this is Debian's `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// One PostgreSQL server, with a database and a superuser `postgres` without a password.
#[derive(Debug)]
pub struct Postgres(Server);

impl Postgres {
    /// A server that does not wait for the disk: it survives `kill -9`, not a power cut.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&["fsync=off"])
    }

    /// A server with these settings, such as `["max_connections=20"]`, and the machine's own for the
    /// rest: it waits for the disk.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::prepared(new_cluster, settings)
    }

    /// A server with TLS, whose certificate is for `localhost` and signed by itself: [`certificate`](Self::certificate).
    #[must_use]
    pub fn with_tls() -> Self {
        let prepare = |folder: &Path| {
            new_cluster(folder);
            let file = |name: &str| folder.join("data").join(name);
            certificate::make(&file("server.key"), &file("server.crt"));
            if is_root(folder) {
                chown(file("server.key"), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            fs::set_permissions(file("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::copy(file("server.crt"), folder.join("certificate.pem")).unwrap();
        };
        Self::prepared(prepare, &["fsync=off", "ssl=on"])
    }

    /// The certificate of a server with TLS.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.0.folder().join("certificate.pem")
    }

    fn prepared(prepare: impl FnOnce(&Path), settings: &[&str]) -> Self {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Server::start(prepare, move |port, folder| {
            let mut command = unprivileged(folder, "postgres");
            command.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"]);
            command.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
            for setting in &settings {
                command.args(["-c", setting]);
            }
            command
        });
        let postgres = Self(server);
        postgres.until_ready();
        postgres
    }

    /// Starts it again after it was killed or stopped, and returns when it has recovered.
    pub fn restart(&mut self) {
        self.0.restart();
        self.until_ready();
    }

    /// It listens before it takes statements.
    fn until_ready(&self) {
        until("PostgreSQL is ready", || self.psql("select 1").status.success());
    }

    fn psql(&self, statement: &str) -> Output {
        let url = self.url();
        Command::new(tool("psql")).args(["-X", "-q", "-A", "-t", "-c", statement, &url]).output().unwrap()
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.0.port())
    }

    /// What one statement prints, by `psql`: values separated by `|`, rows by line ends.
    #[must_use]
    pub fn sql(&self, statement: &str) -> String {
        let output = self.psql(statement);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Lets transactions that begin from now on, of all sessions, only read; or lets them write again.
    pub fn read_only(&self, only: bool) {
        let _ = self.sql(&format!("alter system set default_transaction_read_only = {only}"));
        let _ = self.sql("select pg_reload_conf()");
    }

    /// Lets no file of it grow beyond so many bytes, as if its disk were full there; `None` gives the room back.
    /// From 16 MiB on, its log of transactions is not in the way.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let soft = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let server = self.0.id().expect("it runs").to_string();
        // Its sessions are children of it; those to come have its limit.
        for id in children(&server).chain([server.clone()]) {
            // As its own user, who may do that without any right, up to the limit that is fixed.
            let mut command = unprivileged(self.0.folder(), "prlimit");
            let done = command.args(["--pid", &id]).arg(format!("--fsize={soft}:")).output().unwrap();
            let gone = !Path::new("/proc").join(&id).exists();
            assert!(done.status.success() || gone, "{}", String::from_utf8_lossy(&done.stderr));
        }
    }

    /// Its process: `stop("-INT")` is a fast shutdown.
    #[must_use]
    pub const fn server(&mut self) -> &mut Server {
        &mut self.0
    }
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

/// A program, as a user that is not root.
pub(crate) fn unprivileged(folder: &Path, program: &str) -> Command {
    let mut command;
    if is_root(folder) {
        // A change of user forgets the signal that our own wrapper asked for.
        command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "--pdeathsig", "KILL", "--"]).arg(tool(program));
    } else {
        command = Command::new(tool(program));
    }
    command
}

/// Whether we are root, to whom our own new folders belong.
pub(crate) fn is_root(folder: &Path) -> bool {
    matches!(fs::metadata(folder).unwrap().uid(), 0 | NOBODY)
}

/// The program of that name, from Debian's folder where it is not on the path.
pub(crate) fn tool(name: &str) -> PathBuf {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    std::env::split_paths(&on_path)
        .chain([PathBuf::from("/usr/sbin")])
        .chain(installed.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is not installed: run scripts/test, which installs it"))
}

/// Makes a data folder, by copying one that was made before: that is three times as fast.
fn new_cluster(folder: &Path) {
    let data = folder.join("data");
    copy(&template(), &data);
    if is_root(folder) {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(&data).status().unwrap().success());
    }
}

fn template() -> PathBuf {
    let version = Command::new(tool("postgres")).arg("--version").output().unwrap().stdout;
    let name = String::from_utf8_lossy(&version).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let template = home.join(name.trim_matches('-'));
    if !template.exists() {
        fs::create_dir_all(&home).unwrap();
        // Outside `home`, which its user may not reach, and moved in whole.
        let made = tempfile::Builder::new().prefix("idem-initdb-").tempdir().unwrap();
        if is_root(made.path()) {
            chown(made.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut initdb = unprivileged(made.path(), "initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(made.path().join("data"));
        let output = initdb.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let copied = tempfile::tempdir_in(&home).unwrap();
        copy(&made.path().join("data"), &copied.path().join("data"));
        // Another process may have been faster; its template is as good.
        let _ = fs::rename(copied.path().join("data"), &template);
    }
    template
}

pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}
