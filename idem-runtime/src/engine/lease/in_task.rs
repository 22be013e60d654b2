//! Renewal in the caller's own task. It needs no extra task, and no timer until the body is pending for the first time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::engine::claim::claimed::Claimed;
use idem_core::Store;

/// Renews the lease of one attempt while its body is polled beside it.
pub(crate) struct RenewalInTask<S: Store> {
    claimed: Arc<Claimed<S>>,
    timer: Option<Pin<Box<Sleep>>>,
    renewal: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl<S: Store> RenewalInTask<S> {
    pub(crate) fn new(claimed: &Arc<Claimed<S>>) -> Self {
        Self { claimed: claimed.clone(), timer: None, renewal: None }
    }

    /// Renews the lease when it is due; ready when the lease is lost.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (lease, process) = (&self.claimed.lease, &self.claimed.call.process);
        lease.waker.register(cx.waker());
        loop {
            if lease.is_lost() {
                return Poll::Ready(());
            }
            if let Some(renewal) = &mut self.renewal {
                let Poll::Ready(renewed) = renewal.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.renewal = None;
                let next = if renewed {
                    lease.renewal_at(process)
                } else {
                    Instant::now() + lease.pause_after_failure()
                };
                if let Some(timer) = &mut self.timer {
                    timer.as_mut().reset(next);
                }
                continue;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(lease.renewal_at(process))));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let due = lease.renewal_at(process);
            if due > Instant::now() {
                // The renewal thread has renewed the lease meanwhile.
                timer.as_mut().reset(due);
            } else {
                self.renewal = Some(Box::pin(self.claimed.clone().renew()));
            }
        }
    }
}
