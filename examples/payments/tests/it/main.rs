//! The example `payments` as processes, and `idem-client` against it.

#![allow(clippy::duplicate_mod, reason = "the same cases run on each framework")]

mod client;

#[path = "cases.rs"]
mod actix;
#[path = "cases.rs"]
mod axum;

/// The program on this framework.
fn program(framework: &str) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_payments"));
    command.args(["--framework", framework]);
    command
}
