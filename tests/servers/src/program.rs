//! Runs a program of this workspace as a process, and reads the line of JSON that it prints.
#![allow(missing_docs, reason = "fields and methods are named after what they give")]

use std::error::Error;
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use serde_json::Value;

/// The exit code of a rig: 0 if every promise was kept, 1 if not. If the rig could not run, prints the error
/// and returns 2.
pub fn exit(kept: Result<bool, Box<dyn Error + Send + Sync>>) -> ExitCode {
    match kept {
        Ok(kept) => ExitCode::from(u8::from(!kept)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the line of a run, and its violations. Returns whether every promise was kept.
pub fn report(line: &Value, violations: &[String]) -> bool {
    println!("{line}");
    violations.iter().for_each(|violation| eprintln!("violation: {violation}"));
    violations.is_empty()
}

/// The result of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The line on stdout, as JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn outcome(&self) -> String {
        self.json()["outcome"].as_str().unwrap().to_owned()
    }

    pub fn receipt(&self) -> String {
        self.json()["receipt"].as_str().unwrap_or_else(|| panic!("no receipt: {self:?}")).to_owned()
    }
}

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Process(Option<Child>);

impl Process {
    /// Starts the command. [`end`](Self::end) returns what the process prints.
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts the command, and leaves its input and its outputs as the caller has set them.
    pub fn spawn(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// The standard output of the process, for which the command must have a pipe. Can be called once.
    pub fn stdout(&mut self) -> ChildStdout {
        self.0.as_mut().unwrap().stdout.take().unwrap()
    }

    /// The exit status, if the process has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.0.as_mut().unwrap().try_wait().unwrap()
    }

    pub fn end(mut self) -> Ended {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Sends a signal: `-KILL`, `-TERM`, `-STOP` or `-CONT`.
    pub fn signal(&self, signal: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
