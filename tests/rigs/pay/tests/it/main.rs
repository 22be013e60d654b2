//! Tests of pay: processes that share a store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod on_a_server;
mod processes;
mod shop;
