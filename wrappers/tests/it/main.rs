//! Tests of idem-wrappers, through the crate that users depend on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod cached;
mod compressed;
mod digested;
mod encrypted;
mod marks;
mod sealed_support;
