//! Tests of idem-messages, through the crate that users depend on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../../../../idem-runtime/tests/it/events.rs"]
mod events;
mod lambda_batch;
mod message;
mod message_consumer;
mod message_metrics;
mod message_outage;
mod message_shutdown;
mod message_support;
mod message_tasks;
