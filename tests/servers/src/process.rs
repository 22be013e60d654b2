//! A server's process, its port and its folder.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use tempfile::TempDir;

/// How often a start is tried: another test may take the port between its choice and its use.
const TRIES: usize = 5;

/// How long a server may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(120);

type Recipe = Box<dyn Fn(u16, &Path) -> Command + Send + Sync>;

/// A server of our own. It does not outlive its drop, nor the process that started it.
pub struct Server {
    port: u16,
    folder: TempDir,
    recipe: Recipe,
    child: Option<Child>,
}

impl Server {
    /// Starts what `recipe` says for a port and a folder, and returns once it listens there.
    /// `prepare` is called once with the folder.
    pub fn start(
        prepare: impl FnOnce(&Path),
        recipe: impl Fn(u16, &Path) -> Command + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("idem-server-").tempdir().unwrap();
        prepare(folder.path());
        let mut server = Self { port: 0, folder, recipe: Box::new(recipe), child: None };
        for _ in 0..TRIES {
            server.port = free_port();
            if server.try_start() {
                return server;
            }
        }
        panic!("the server did not start; it said:\n{}", server.log());
    }

    /// Starts it again on the same port, with the same folder, after [`kill`](Self::kill) or
    /// [`stop`](Self::stop).
    pub fn restart(&mut self) {
        let begin = Instant::now();
        while !self.try_start() {
            assert!(begin.elapsed() < PATIENCE, "the server did not start again; it said:\n{}", self.log());
        }
    }

    fn try_start(&mut self) -> bool {
        self.kill();
        let command = (self.recipe)(self.port, self.folder.path());
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut child = spawn(with_parent(&command, log)).unwrap();
        let begin = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        while begin.elapsed() < PATIENCE {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(address).is_ok() {
                self.child = Some(child);
                return true;
            }
            thread::sleep(Duration::from_millis(3));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    /// Where it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its folder, which it also takes with it when it ends.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has written.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its process, unless it was ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends a signal, such as `-STOP`, `-CONT` or `-INT`.
    pub fn signal(&self, signal: &str) {
        if let Some(id) = self.id() {
            assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
        }
    }

    /// `kill -9`, and returns once it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to end by this signal, and returns once it has.
    pub fn stop(&mut self, signal: &str) {
        self.signal(signal);
        if let Some(child) = &mut self.child {
            until("the server ends", || child.try_wait().unwrap().is_some());
        }
        self.child = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("port", &self.port).field("id", &self.id()).finish_non_exhaustive()
    }
}

/// A port that nobody listened on a moment ago.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns once `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The same command under `setpriv`, which has the kernel end it when its parent is gone: a test that
/// is killed leaves no server behind.
fn with_parent(command: &Command, log: fs::File) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL"]).arg("--");
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    let errors = log.try_clone().unwrap();
    wrapped.stdin(Stdio::null()).stdout(log).stderr(errors);
    wrapped
}

/// Spawns on a thread that does not end: for the kernel, the parent is the thread.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::SyncSender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, taken) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in taken {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, spawned) = mpsc::sync_channel(1);
    SPAWNER.send((command, answer)).map_err(io::Error::other)?;
    spawned.recv().map_err(io::Error::other)?
}
