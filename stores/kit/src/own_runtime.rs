//! A runtime for the stores: one thread that drives the work that no caller may hold up.
//!
//! A connection is bound to the runtime in which it was made. In the caller's runtime, a body that blocks its thread
//! would hold up the renewal of its own lease, and the connection would end with that runtime (decision 0001).

use std::future::pending;
use std::sync::LazyLock;
use std::thread;

use tokio::runtime::{Builder, Handle};

use idem_core::StoreError;

static OWN: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("idem-store".into()).spawn(move || runtime.block_on(pending::<()>())).ok()?;
    Some(handle)
});

/// The handle of the runtime.
///
/// # Errors
///
/// `Unavailable` if the process cannot start a thread.
pub fn own_runtime() -> Result<&'static Handle, StoreError> {
    OWN.as_ref().ok_or_else(|| StoreError::unavailable("no thread can be started for it"))
}

/// Starts `work` in that runtime at once. The work continues when the returned future is dropped.
///
/// The returned future does not contain `work`, so callers stay small however large the work is.
///
/// # Errors
///
/// Those of `work`; `OutcomeUnknown` if it panicked.
pub fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> + Send {
    let started = own_runtime().map(|own| own.spawn(work));
    async move {
        match started?.await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
        }
    }
}
