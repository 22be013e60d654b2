//! The example `payments-actix` as processes: the cases of `payments`.

#[path = "../../payments/tests/cases/mod.rs"]
mod cases;

/// The program that the cases start.
const PROGRAM: &str = env!("CARGO_BIN_EXE_payments-actix");
