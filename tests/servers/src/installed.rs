//! Checks whether a server is installed, and says how to install it.
//!
//! A test fails if its server is missing; a demo prints one line and ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::Process;

/// The message for a server that is not installed; `word` is its name in `scripts/servers`.
pub(crate) fn missing(name: &str, word: &str) -> String {
    format!("{name} is not installed: run `scripts/servers {word}`, which installs it")
}

/// Whether what was found can be started, too.
pub(crate) fn startable<T>(found: Result<T, String>) -> Result<(), String> {
    found?;
    let by = in_path_or("setpriv", []);
    by.map(drop).ok_or_else(|| "`setpriv` is not in the path: servers are started by it, and end with who started them (Linux, package util-linux)".to_owned())
}

/// The program of a server, for a test.
pub(crate) fn required(found: Result<PathBuf, String>) -> PathBuf {
    found.unwrap_or_else(|missing| panic!("{missing}"))
}

/// Names a folder, and then programs are looked for below it and nowhere else: an empty one is a machine without any
/// server.
const ONLY_IN: &str = "IDEM_SERVERS_ONLY_IN";

/// Where to look for what is at this place.
pub(crate) fn place(path: &Path) -> PathBuf {
    match std::env::var_os(ONLY_IN) {
        Some(root) => Path::new(&root).join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// The program at this place, if it is there.
pub(crate) fn at(path: &Path) -> Option<PathBuf> {
    Some(place(path)).filter(|path| path.exists())
}

/// The program of this name in the path, or in one of these folders.
pub(crate) fn in_path_or(name: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(folders).find_map(|folder| at(&folder.join(name)))
}

/// Runs a program of this workspace as on a machine without servers: for each row of arguments, it has to end in an error of
/// one line that says how to get these, by their words for `scripts/servers`.
pub fn says_what_is_missing(program: &str, table: &[(&[&str], &[&str])]) {
    let empty = tempfile::tempdir().unwrap();
    for (arguments, words) in table {
        let ended = Process::start(Command::new(program).args(*arguments).env(ONLY_IN, empty.path())).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{arguments:?}: {ended:?}");
        for word in *words {
            let how = format!("is not installed: run `scripts/servers {word}`, which installs it");
            assert!(ended.stderr.contains(&how), "{arguments:?} should say `{how}`: {ended:?}");
        }
    }
}
