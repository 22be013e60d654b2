//! The rig on real brokers and stores, and its parts.

mod function;
mod runs;

const PROGRAM: &str = env!("CARGO_BIN_EXE_demo");
