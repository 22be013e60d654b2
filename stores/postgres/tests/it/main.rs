//! Tests of idem-postgres: the kit, failures, and the outbox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod conformance;
mod connections;
mod contention;
mod drivers;
mod encryption;
mod exchanges;
mod failures;
mod full_disk;
mod hosts;
mod limits;
mod outbox;
mod outbox_at_random;
mod outbox_events;
mod outbox_relay;
mod outbox_support;
mod poolers;
mod purge;
mod support;
