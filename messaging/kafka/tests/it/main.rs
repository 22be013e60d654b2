//! Tests of idem-kafka against a broker that speaks Kafka's protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod rebalance;
mod suite;
mod support;
mod unsent;
