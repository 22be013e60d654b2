//! The upkeep of a lease from within the caller's task: no task and no timer until the body has
//! once gone to sleep.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::attempt::Claimed;
use super::keeper::Watch;
use crate::store::Store;

/// How long after a failed renewal the next is sent, at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Renews the lease of one attempt while its body is polled beside it.
pub(super) struct Upkeep<S: Store> {
    claimed: Arc<Claimed<S>>,
    /// The keeper renews where the body blocks its thread.
    _watch: Watch,
    timer: Option<Pin<Box<Sleep>>>,
    renewal: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl<S: Store> Upkeep<S> {
    pub(super) fn new(claimed: &Arc<Claimed<S>>) -> Self {
        Self { claimed: claimed.clone(), _watch: Watch::over(claimed.clone()), timer: None, renewal: None }
    }

    /// Ready when the lease is lost.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lease = &self.claimed.lease;
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
                let pause = (lease.length / 12).min(LONGEST_PAUSE);
                let next = if renewed { lease.renew_at() } else { Instant::now() + pause };
                if let Some(timer) = &mut self.timer {
                    timer.as_mut().reset(next);
                }
                continue;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(lease.renew_at())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let due = lease.renew_at();
            if due > Instant::now() {
                // The keeper was here.
                timer.as_mut().reset(due);
            } else {
                self.renewal = Some(Box::pin(self.claimed.clone().renew()));
            }
        }
    }
}
