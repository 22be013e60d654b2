//! The rig on real brokers and stores, and its parts.

mod function;
mod runs;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_demo");
