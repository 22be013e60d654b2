//! What must still happen when the caller has gone away.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Finishes `work` without a caller.
///
/// It is begun at once, so that a store that only takes an order has it before the caller's runtime
/// can end; what is left of it becomes a task.
pub(super) fn finish(
    runtime: &Handle,
    mut work: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> Option<JoinHandle<()>> {
    if !std::thread::panicking() {
        let _entered = runtime.enter();
        let mut cx = Context::from_waker(Waker::noop());
        // A timer panics where the runtime was shut down; the store has its order by then.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) | Err(_) => return None,
        }
    }
    Some(runtime.spawn(work))
}
