//! The demo under a unique name: cargo builds the programs of all crates into one folder, and tests must find theirs.

use std::process::ExitCode;

#[path = "demo.rs"]
mod demo;

fn main() -> ExitCode {
    demo::main()
}
