//! Servers that the test processes of a run share, because each test runs in a process of its own.
//!
//! The first process that needs a server starts it under a supervisor, a shell script. Each process that uses
//! the server holds a lock on the file `users`. When the process ends, even by a kill, the kernel releases
//! the lock. The supervisor ends the server and removes its folder a few seconds after the last user.
//! Starting, joining and ending a server happen under the lock of the file `gate`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{Recipe, TRIES, comes_to_listen, free_port, listens};

/// Ends the server when nobody uses it. Its arguments: the files `gate`, `users` and `port`, the server's
/// folder, and the server's command. If the script is killed, the kernel ends the server (see `setpriv`).
const SUPERVISOR: &str = r#"
gate=$1 users=$2 port=$3 folder=$4; shift 4
setpriv --pdeathsig KILL -- "$@" &
server=$!
while sleep 3 && kill -0 $server; do
  exec 8>"$gate"; flock 8
  flock -n -x "$users" true && break
  exec 8>&-
done
rm -f "$port"
kill -9 $server; wait
rm -rf "$folder"
"#;

/// One use of a shared server. The server runs until a few seconds after the last use has ended.
pub(crate) struct Shared {
    pub(crate) port: u16,
    _user: File,
}

impl Shared {
    /// Uses the server of this name, and starts it if it does not run.
    pub(crate) fn join(name: &str, prepare: impl FnOnce(&Path), recipe: &Recipe) -> Self {
        let home = home(name);
        fs::create_dir_all(&home).unwrap();
        let gate = File::create(home.join("gate")).unwrap();
        gate.lock().unwrap();
        let user = File::options().create(true).append(true).open(home.join("users")).unwrap();
        user.lock_shared().unwrap();
        let running = fs::read_to_string(home.join("port")).ok().and_then(|port| port.parse().ok());
        let port = running.filter(|port| listens(*port)).unwrap_or_else(|| start(&home, prepare, recipe));
        Self { port, _user: user }
    }
}

/// A folder for this checkout and this user. Tests of other checkouts and other users do not share it.
fn home(name: &str) -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).to_string_lossy().replace('/', "-");
    let user = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap());
    std::env::temp_dir().join(format!("idem-shared{checkout}-{user}")).join(name)
}

/// A name for a database that no other test has.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn start(home: &Path, prepare: impl FnOnce(&Path), recipe: &Recipe) -> u16 {
    let folder = tempfile::Builder::new().prefix("idem-server-").tempdir().unwrap().keep();
    prepare(&folder);
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    for _ in 0..TRIES {
        let port = free_port();
        let server = recipe(port, &folder);
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]);
        command.args([home.join("gate"), home.join("users"), home.join("port"), folder.clone()]);
        command.arg(server.get_program()).args(server.get_args());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
        // The supervisor has its own process group, because the test runner ends the group of each test.
        let mut supervisor = command.process_group(0).spawn().unwrap();
        if comes_to_listen(&mut supervisor, port) {
            fs::write(home.join("port"), port.to_string()).unwrap();
            return port;
        }
    }
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    panic!("the shared server did not start; its log:\n{log}");
}
