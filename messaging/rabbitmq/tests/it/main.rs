//! Tests of idem-rabbitmq against a RabbitMQ node.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod copies;
mod suite;
mod support;
