//! Tests of idem-sqlite: the kit, files, processes, and what goes wrong with them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod basics;
mod concurrency;
mod conformance;
mod must_exist;
mod processes;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod retention;
mod support;
mod unavailable;
