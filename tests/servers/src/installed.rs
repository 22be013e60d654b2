//! Whether a server is there, and how to get it.
//!
//! A test that needs one which is missing fails; a demo says so in one line, and ends.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What to say of a server that is not there, which `scripts/servers` knows by this word.
pub(crate) fn missing(name: &str, word: &str) -> String {
    format!("{name} is not installed: run `scripts/servers {word}`, which installs it")
}

/// The program of a server, for a test.
pub(crate) fn required(found: Result<PathBuf, String>) -> PathBuf {
    found.unwrap_or_else(|missing| panic!("{missing}"))
}

/// Whether there is a program of this name.
pub(crate) fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
