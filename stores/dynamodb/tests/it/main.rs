//! Tests of idem-dynamodb: the kit, tables, and what a call costs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod capacity;
mod conformance;
mod support;
mod table;
