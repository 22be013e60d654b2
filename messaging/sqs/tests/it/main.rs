//! Tests of idem-sqs against an emulator of SQS.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod suite;
mod support;
