//! Tests of idem-redis: the conformance kit, records, servers, clusters and failovers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod cluster;
mod conformance;
#[path = "../../../../idem-runtime/tests/it/events.rs"]
mod events;
mod failover;
mod records;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
mod runtimes;
mod server;
mod support;
