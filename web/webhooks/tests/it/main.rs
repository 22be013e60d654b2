//! Tests of the signatures by the senders' published vectors, and of the layer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod layer;
mod malformed;
mod support;
