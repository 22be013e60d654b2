//! Finds the programs of servers. If the program of a server is missing, the test or the rig ends, and says
//! how to install the server.

use std::io::Write as _;
use std::path::PathBuf;

/// The program of a server; `word` is the server's name in `scripts/servers`. If the program is missing, this
/// process prints a line and ends with 2.
pub(crate) fn required(found: Option<PathBuf>, name: &str, word: &str) -> PathBuf {
    found.unwrap_or_else(|| {
        let line = format!("{name} is not installed: run `scripts/servers {word}`, which installs it\n");
        // `eprintln` would write to the captured output of a test, which is lost when the process ends.
        let _ = std::io::stderr().write_all(line.as_bytes());
        std::process::exit(2)
    })
}

/// The program at this path in the folder `target` of the workspace, if it exists.
pub(crate) fn in_target(path: &str) -> Option<PathBuf> {
    let target = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"));
    Some(target.join(path)).filter(|path| path.exists())
}

/// The program of this name on the `PATH`, or in one of these folders.
pub(crate) fn in_path_or(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(folders);
    folders.map(|folder| folder.join(name)).find(|program| program.exists())
}
