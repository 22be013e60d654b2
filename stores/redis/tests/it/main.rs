//! Tests of idem-redis: the kit, records, servers, clusters and failovers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod cluster;
mod conformance;
mod failover;
mod records;
mod runtimes;
mod server;
mod support;
