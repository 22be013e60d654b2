//! A host name that leads from one server to another while a test runs, as in DNS when a replica takes over.
//!
//! The system's resolver reads a file of the test's own: Debian's `libnss-wrapper` stands before it in a process that the
//! test starts for this. No name of the machine changes, and no privilege is needed.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io, thread};

/// The name.
const NAME: &str = "db.idem.test";
/// Where the process of the test finds the file of names.
const FILE: &str = "NSS_WRAPPER_HOSTS";
/// The loopback addresses that the name leads to.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// A name with one port, behind which is one of two servers.
#[derive(Debug)]
pub struct MovingName {
    file: PathBuf,
    port: u16,
}

impl MovingName {
    /// Runs `body` in a process in which names move: the test calls this with its own name, as `--exact` takes it, and is run
    /// again there.
    pub fn in_process_of(test: &str, body: impl FnOnce()) {
        if env::var_os(FILE).is_some() {
            return body();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        fs::write(&file, "127.0.0.1 localhost\n").unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args([test, "--exact", "--nocapture"]).env(FILE, &file).env("LD_PRELOAD", library());
        let output = again.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success() && text[0].contains("1 passed"), "{}", text.concat());
    }

    /// The name leads to the first of the servers that listen on these ports of 127.0.0.1. Only in
    /// [`in_process_of`](Self::in_process_of).
    #[must_use]
    pub fn of(servers: [u16; 2]) -> Self {
        let (port, listeners) = listeners();
        for (listener, server) in listeners.into_iter().zip(servers) {
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    // A server that is gone refuses its connections, and so does this.
                    if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                        pass(&client, &server);
                        pass(&server, &client);
                    }
                }
            });
        }
        let file = env::var_os(FILE).expect("called by `in_process_of`").into();
        let name = Self { file, port };
        name.lead_to(0);
        name
    }

    /// From now on the name leads to this one of the servers, for those who ask.
    pub fn lead_to(&self, server: usize) {
        let text = format!("127.0.0.1 localhost\n{} {NAME}\n", ADDRESSES[server]);
        let new = self.file.with_extension("new");
        fs::write(&new, text).unwrap();
        // As another file, because the resolver would not see a change within one second.
        fs::rename(new, &self.file).unwrap();
    }

    /// `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{NAME}:{}", self.port)
    }
}

/// A listener on each address, with one port.
fn listeners() -> (u16, [TcpListener; 2]) {
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        let first = TcpListener::bind((ADDRESSES[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = TcpListener::bind((ADDRESSES[1], port)) {
            return (port, [first, second]);
        }
    }
    panic!("no port is free on both addresses");
}

/// Passes on what `from` sends until either end is closed.
fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    });
}

fn library() -> PathBuf {
    let folders = ["/usr/lib", "/usr/lib64"].into_iter().filter_map(|folder| fs::read_dir(folder).ok());
    let mut places = folders.flatten().flatten().map(|folder| folder.path().join("libnss_wrapper.so"));
    places
        .find(|place| place.exists())
        .expect("libnss-wrapper is not installed: run scripts/test, which installs it")
}
