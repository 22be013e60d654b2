//! What the database servers have in common: a process of their own or a shared one, a user that is not root, and a data folder
//! that is copied from one that was made earlier.

use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::in_path_or;
use crate::process::Server;
use crate::shared::Shared;

/// The user id of Debian's `nobody`, because the servers refuse to run as root.
const NOBODY: u32 = 65_534;

/// The process of a server.
#[derive(Debug)]
pub(crate) enum Process {
    Own(Server),
    Shared(Shared),
}

impl Process {
    /// The process, which no other test uses.
    pub(crate) fn own(&self) -> &Server {
        match self {
            Self::Own(server) => server,
            Self::Shared(_) => panic!("other tests use this server: start one"),
        }
    }

    pub(crate) fn own_mut(&mut self) -> &mut Server {
        match self {
            Self::Own(server) => server,
            Self::Shared(_) => panic!("other tests use this server: start one"),
        }
    }

    pub(crate) const fn port(&self) -> u16 {
        match self {
            Self::Own(server) => server.port(),
            Self::Shared(shared) => shared.port(),
        }
    }

    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

/// A command that runs a program as a user other than root.
pub(crate) fn unprivileged(folder: &Path, program: &str) -> Command {
    let mut command;
    if is_root(folder) {
        // A change of user clears the signal that our own wrapper asked for.
        command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "--pdeathsig", "KILL", "--"]).arg(tool(program));
    } else {
        command = Command::new(tool(program));
    }
    command
}

/// Whether this process runs as root, which then owns the folders it makes.
fn is_root(folder: &Path) -> bool {
    matches!(fs::metadata(folder).unwrap().uid(), 0 | NOBODY)
}

/// The path of the program with this name, in Debian's folder if it is not on the `PATH`.
pub(crate) fn tool(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not installed: run scripts/test, which installs it"))
}

pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = installed.map(|version| version.path().join("bin"));
    in_path_or(name, iter::once(PathBuf::from("/usr/sbin")).chain(folders))
}

/// Gives a folder, with all in it, to the user that a server runs as.
pub(crate) fn give(folder: &Path) {
    if is_root(folder) {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(folder).status().unwrap().success());
    }
}

/// Copies a data folder that was made earlier by this version of the program, which is much faster than making one. `make` is the
/// command that makes `data` in a folder.
pub(crate) fn copy_of_template(version: &str, data: &Path, make: impl FnOnce(&Path) -> Command) {
    let name = version.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let template = home.join(name.trim_matches('-'));
    if !template.exists() {
        fs::create_dir_all(&home).unwrap();
        // Made outside `home`, which the server's user may have no access to, and then moved there as a whole.
        let made = tempfile::Builder::new().prefix("idem-data-").tempdir().unwrap();
        give(made.path());
        let output = make(made.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        let copied = tempfile::tempdir_in(&home).unwrap();
        copy(&made.path().join("data"), &copied.path().join("data"));
        // Another process may have been faster; its template is as good.
        let _ = fs::rename(copied.path().join("data"), &template);
    }
    copy(&template, data);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}
