//! The demo, under a name that no other crate's program has: tests of several crates are built into one folder.

use std::process::ExitCode;

#[path = "demo.rs"]
mod demo;

fn main() -> ExitCode {
    demo::main()
}
