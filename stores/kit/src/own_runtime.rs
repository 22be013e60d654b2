//! The stores' own runtime: one thread for the work that no caller may delay.
//!
//! A connection is bound to the runtime in which it was made. If connections were in the caller's runtime, a
//! body that blocks its thread would delay the renewal of its own lease. The connections would also end with
//! that runtime (decision 0001 in `docs/internals/decisions`).

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::thread;

use tokio::runtime::{Builder, Handle};

use idem_core::StoreError;

static OWN: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("idem-store".into()).spawn(move || runtime.block_on(pending::<()>())).ok()?;
    Some(handle)
});

/// The handle of the stores' own runtime.
///
/// # Errors
///
/// `Unavailable` if the runtime or its thread cannot be started.
pub fn own_runtime() -> Result<&'static Handle, StoreError> {
    OWN.as_ref().ok_or_else(|| StoreError::unavailable("no thread can be started for it"))
}

/// Runs `work` in the caller's task, but with the timers and the connections of the stores' own runtime. What
/// `work` spawns, such as the task of a connection, continues when the caller's runtime is blocked or gone.
/// No test pauses the clock of these timers.
///
/// # Errors
///
/// The errors of `work`, and `Unavailable` if the stores' own runtime cannot be started.
pub fn entered<T>(
    work: impl Future<Output = Result<T, StoreError>> + Send + Unpin,
) -> impl Future<Output = Result<T, StoreError>> + Send {
    let (own, mut work) = (own_runtime(), Entered(Some(work)));
    poll_fn(move |context| match &own {
        Ok(own) => work.poll_in(own, context),
        Err(error) => Poll::Ready(Err(error.clone())),
    })
}

/// Work that is polled, and dropped, in the context of the stores' own runtime.
struct Entered<F>(Option<F>);

impl<F: Future + Unpin> Entered<F> {
    fn poll_in(&mut self, own: &Handle, context: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = own.enter();
        self.0.as_mut().map_or(Poll::Pending, |work| Pin::new(work).poll(context))
    }
}

impl<F> Drop for Entered<F> {
    fn drop(&mut self) {
        let _entered = own_runtime().map(Handle::enter);
        self.0 = None;
    }
}

/// Starts `work` in the stores' own runtime at once. The work continues when the returned future is dropped.
///
/// The returned future does not contain `work`, so the callers' futures stay small however large `work` is.
///
/// # Errors
///
/// The errors of `work`; `OutcomeUnknown` if `work` panicked; `Unavailable` if the stores' own runtime cannot
/// be started.
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_has_entered_the_stores_runtime_has_its_clock_and_spawns_there() {
        let callers = Handle::current().id();
        let work = Box::pin(async move {
            let begin = Instant::now();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let spawned = tokio::spawn(async { Handle::current().id() }).await;
            Ok((begin.elapsed(), spawned.is_ok_and(|id| id != callers)))
        });
        let (time, is_apart) = entered(work).await.unwrap();
        assert!(time >= Duration::from_millis(20) && is_apart, "{time:?}");
        assert_eq!(Handle::current().id(), callers);
    }
}
