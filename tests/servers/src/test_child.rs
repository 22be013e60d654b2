//! Runs another test of the same test binary in a separate process, which can be killed.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{ChildStdout, Command, Stdio};

use crate::program::Process;

/// The prefix that separates a child's words from the output of the test harness.
const SAY: &str = "says: ";

/// Sends a word to the test that started this process.
pub fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{SAY}{word}").unwrap();
    out.flush().unwrap();
}

/// A process that runs one test of this binary. It is killed when this value is dropped.
pub struct TestChild {
    _process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl TestChild {
    /// Starts the test of this name with these environment variables.
    pub fn start<'a>(test: &str, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).envs(variables);
        let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let lines = BufReader::new(process.stdout()).lines();
        Self { _process: process, lines }
    }

    /// The next word that the child sends.
    pub fn word(&mut self) -> String {
        self.lines.find_map(|line| line.unwrap().strip_prefix(SAY).map(str::to_owned)).unwrap()
    }
}
