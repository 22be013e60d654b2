//! Tests of idem-testing: the model check and its mutants, random histories, the kit on the store in memory,
//! and the errors. The tests of `injure` and `twice` are in `tests/it` of the workspace, because this package
//! is compiled with optimisation, where they would take minutes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[macro_use]
mod support;

mod conformance_memory;
mod errors;
mod model;
mod model_mutants;
mod mutants_kit;
mod properties;
