//! Tests of idem-outbox, on a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../../../idem-runtime/tests/it/events.rs"]
mod events;
mod outbox;
mod outbox_at_random;
mod outbox_events;
mod outbox_relay;
mod outbox_support;
