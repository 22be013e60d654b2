//! Runs the worker on this machine, and kills it: see [`kafka_worker::demo`].

use std::process::ExitCode;

fn main() -> ExitCode {
    kafka_worker::demo::main()
}
