//! Tests of idem-sqlite: the kit, files, processes, and what goes wrong with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod concurrency;
mod conformance;
mod processes;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod retention;
mod support;
mod unavailable;
