//! Tests of idem-client against services of this process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod downstream;
mod layer;
mod over_reqwest;
