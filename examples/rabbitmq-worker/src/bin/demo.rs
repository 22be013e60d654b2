//! Runs the worker on this machine, and kills it: see [`rabbitmq_worker::demo`].

use std::process::ExitCode;

fn main() -> ExitCode {
    rabbitmq_worker::demo::main()
}
