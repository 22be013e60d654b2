//! Tests of idem-dynamodb: the conformance kit, and what the store promises beyond the protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod conformance;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod support;
mod table;
