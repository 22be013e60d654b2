//! Tests of idem-object: the conformance kit on a folder and on an emulator of S3, and what the stores
//! promise beyond the protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod conformance;
mod objects;
#[path = "../../../kit/tests/requests/mod.rs"]
mod requests;
