//! `demo` under a name that the demo of no other crate has, for the tests: what has one name in several crates
//! of a workspace lands in one file.

use std::process::ExitCode;

fn main() -> ExitCode {
    kafka_worker::demo::main()
}
