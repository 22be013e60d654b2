//! A runtime of the stores' own: one thread that drives what no caller may hold up.
//!
//! A connection lives in the runtime it was made in. In the caller's, a body that blocks its thread
//! would hold up the renewal of its own lease, and a caller's runtime that ends would take the
//! connection with it (decision 0001).

use std::future::pending;
use std::sync::LazyLock;
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::error::StoreError;

static OWN: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("idem-store".into()).spawn(move || runtime.block_on(pending::<()>())).ok()?;
    Some(handle)
});

/// The runtime itself.
///
/// # Errors
///
/// `Unavailable` where the process cannot start a thread.
pub fn own_runtime() -> Result<&'static Handle, StoreError> {
    OWN.as_ref().ok_or_else(|| StoreError::unavailable("no thread can be started for it"))
}

/// Does `work` there. It goes on when the returned future is dropped.
///
/// # Errors
///
/// Those of `work`; `OutcomeUnknown` if it panicked.
pub async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    match own_runtime()?.spawn(work).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::outcome_unknown("the work on it was broken off")),
    }
}
