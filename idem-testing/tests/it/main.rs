//! Tests of idem-testing: the model check and its mutants, random histories, the kit on the store in memory,
//! the errors, tests under injuries, and `twice`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[macro_use]
mod support;

mod conformance_memory;
mod errors;
mod injury;
mod model;
mod model_mutants;
mod mutants_kit;
mod properties;
#[cfg(all(feature = "http", feature = "message"))]
mod twice;
#[cfg(all(feature = "http", feature = "message"))]
mod twice_http;
