//! Runs a program of this workspace as a process and reads the line of JSON that it prints.
#![allow(missing_docs, reason = "fields and methods are named after what they give")]

use std::process::{Child, Command, Stdio};

use serde_json::Value;

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

/// A process that is killed when this is dropped.
pub struct Process(Option<Child>);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        ))
    }

    pub fn end(mut self) -> Ended {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Sends a signal: `-KILL`, `-STOP` or `-CONT`.
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
