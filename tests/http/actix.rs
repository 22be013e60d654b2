//! Runs the cases on actix-web.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod actix_only;
#[path = "cases/mod.rs"]
mod cases;
#[path = "actix_server.rs"]
mod framework;
#[path = "../it/support/mod.rs"]
mod support;
