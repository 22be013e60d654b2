//! Tests of idem-nats against a NATS server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod limits;
mod suite;
mod support;
