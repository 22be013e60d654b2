//! Tests of idem-mysql: the conformance kit, transactions of callers, settings of servers and sessions,
//! failures, layouts, purges.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod attribute;
mod conformance;
mod connections;
mod contention;
mod encryption;
mod failures;
mod layouts;
mod purge;
mod settings;
#[path = "../../../kit/tests/sql_servers/mod.rs"]
mod sql_servers;
mod support;
mod transaction;
