//! The example `payments` as processes.

mod cases;

/// The program that the cases start.
const PROGRAM: &str = env!("CARGO_BIN_EXE_payments");
