//! Tests of idem-sqlite: the conformance kit, concurrent callers and processes, retention, and files that
//! fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod concurrency;
mod conformance;
mod processes;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod retention;
mod support;
mod unavailable;
