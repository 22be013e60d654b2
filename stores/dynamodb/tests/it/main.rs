//! Tests of idem-dynamodb: the conformance kit, and tables.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod conformance;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod support;
mod table;
