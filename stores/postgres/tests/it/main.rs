//! Tests of idem-postgres: the conformance kit, drivers, poolers, settings of servers, and failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod conformance;
mod connections;
mod contention;
mod drivers;
mod encryption;
mod failures;
mod full_disk;
mod hosts;
mod limits;
mod poolers;
mod purge;
#[path = "../../../kit/tests/sql_servers/mod.rs"]
mod sql_servers;
mod support;
