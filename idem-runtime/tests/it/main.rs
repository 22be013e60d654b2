//! Tests of idem-runtime: the engine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

// Several crates share the test helpers, so the helpers use the name of the public crate.
extern crate idem_runtime as idem;

mod beyond_the_task;
mod disabled;
mod doubt;
mod events;
mod late;
mod pace;
mod results;
mod slow_store;
#[path = "../../../tests/it/support/mod.rs"]
mod support;
mod surroundings;
mod terminated;
mod two_phase;
mod typed;

use tokio::sync::{Mutex, MutexGuard};

/// Tests that hold this lock run one at a time. They call `drain`, which counts the work of the whole
/// process, and tests may share a process.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}
