//! Tests of the layer, and of malformed deliveries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod layer;
mod malformed;
mod support;
