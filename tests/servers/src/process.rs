//! The process of a server, with its port and its folder.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use tempfile::TempDir;

/// The number of attempts to start a server. An attempt fails if another program takes the port before the
/// server does.
pub(crate) const TRIES: usize = 5;

/// The longest time that a server may take to start or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The ports for servers. They are below the ports that the system itself chooses, for clients and for
/// programs that ask for any port.
const PORTS: Range<u16> = 10_000..32_000;

pub(crate) type Recipe = Box<dyn Fn(u16, &Path) -> Command + Send + Sync>;

/// A running server. It ends when it is dropped or when the process that started it ends.
pub struct Server {
    port: u16,
    folder: TempDir,
    recipe: Recipe,
    child: Option<Child>,
}

impl Server {
    /// Starts the command that `recipe` makes for a port and a folder, and returns once it listens on that
    /// port.
    pub fn start(recipe: impl Fn(u16, &Path) -> Command + Send + Sync + 'static) -> Self {
        Self::start_in(|_| {}, recipe)
    }

    /// As [`start`](Self::start), in a folder that `prepare` has filled.
    pub fn start_in(
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

    /// Starts the server again on the same port, with the same folder, after [`kill`](Self::kill) or
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
        let has_started = comes_to_listen(&mut child, self.port);
        self.child = has_started.then_some(child);
        has_started
    }

    /// The port that the server listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The server's folder, which is removed when the server is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The id of the server's process, unless the process was ended.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends a signal, such as `-STOP`, `-CONT` or `-INT`. After `-STOP`, returns once the process does
    /// nothing any more.
    pub fn signal(&self, signal: &str) {
        if let Some(id) = self.id() {
            assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
            if signal == "-STOP" {
                until("the server has stopped", || is_stopped(id));
            }
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|ended| ended.is_some()))
    }

    /// Ends the server with `kill -9`, and returns once its process is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends this signal, which must end the server, and returns once it has ended.
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

/// Whether all threads of a process are stopped. On a busy machine, a thread stops only when it is scheduled
/// next.
fn is_stopped(id: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    let mut states = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    states.all(|state| state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Waits until this process listens on its port. Returns `false` if the process ends first, or takes too long
/// and is killed.
pub(crate) fn comes_to_listen(child: &mut Child, port: u16) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && child.try_wait().unwrap().is_none() {
        if listens(port) {
            return true;
        }
        thread::sleep(Duration::from_millis(3));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// A port that nobody listens on. No other test process gets it before this process ends.
pub fn free_port() -> u16 {
    /// A locked file for each port that this process got.
    static TAKEN: Mutex<Vec<fs::File>> = Mutex::new(Vec::new());
    let user = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap());
    let folder = std::env::temp_dir().join(format!("idem-ports-{user}"));
    fs::create_dir_all(&folder).unwrap();
    loop {
        let number = RandomState::new().build_hasher().finish() % u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(number).unwrap();
        let lock = fs::File::create(folder.join(port.to_string()));
        if let Ok(lock) = lock
            && lock.try_lock().is_ok()
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            TAKEN.lock().unwrap().push(lock);
            return port;
        }
    }
}

/// Returns once `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The same command under `setpriv`. With this, the kernel ends the process when its parent is gone, so a
/// killed test leaves no server behind.
fn with_parent(command: &Command, log: fs::File) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL"]).arg("--");
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let errors = log.try_clone().unwrap();
    wrapped.stdin(Stdio::null()).stdout(log).stderr(errors);
    wrapped
}

/// Spawns the process on a thread that never ends. For the kernel, the thread is the parent, so the process
/// would end with the thread.
fn spawn(mut command: Command) -> io::Result<Child> {
    let (answer, spawned) = mpsc::channel();
    thread::spawn(move || {
        let _ = answer.send(command.spawn());
        drop(command);
        thread::sleep(Duration::MAX);
    });
    spawned.recv().map_err(io::Error::other)?
}
