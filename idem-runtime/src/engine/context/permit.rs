//! The limit of a consumer on the bodies that run at a time, where its handlers may claim before they may run a body.
//!
//! Owns one handler's part of that limit. It knows neither claims nor messages.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The permit of one handler. A handler that runs several bodies at a time needs one permit for all of them, so that one
/// body can wait for another.
pub(crate) struct HandlerPermit {
    bodies: Arc<Semaphore>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// How many bodies of the handler run.
    running: usize,
    /// Whether the handler has one of the consumer's permits. The number alone is kept: the semaphore's own guard would make
    /// every annotated function one with a significant `Drop` to clippy.
    has_permit: bool,
    /// How many calls of the handler wait for the permit.
    waiting: usize,
    /// Whether any body of the handler has had the permit.
    has_run: bool,
    /// Whether no body of the handler gets it any more.
    is_over: bool,
}

impl HandlerPermit {
    /// Of a handler whose consumer allows as many bodies as `bodies` has permits.
    #[cfg(feature = "message")]
    pub(crate) fn new(bodies: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { bodies: bodies.clone(), state: Mutex::default(), changed: Notify::new() })
    }

    /// Leave for one more body, if it need not wait.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<BodyPermit> {
        if self.state().running == 0 {
            let permit = self.bodies.clone().try_acquire_owned().ok()?;
            return self.hold(permit);
        }
        self.share()
    }

    /// Leave for one more body. Those who wait get it in the order in which they came.
    ///
    /// # Cancellation
    ///
    /// Dropping the future gives the place up.
    pub(crate) async fn acquire(self: &Arc<Self>) -> BodyPermit {
        let _waits = Waits::new(self);
        let mut permit = pin!(self.bodies.clone().acquire_owned());
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            // Another call of this handler may have the permit.
            if let Some(permit) = self.share() {
                return permit;
            }
            match select(permit.as_mut(), changed).await {
                Either::Left((Ok(permit), _)) => match self.hold(permit) {
                    Some(permit) => return permit,
                    None => return std::future::pending().await,
                },
                // Nobody closes the semaphore.
                Either::Left((Err(_), _)) => return std::future::pending().await,
                Either::Right(_) => {}
            }
        }
    }

    /// Returns once the handler waits, and has run no body. From then on it gets leave for none.
    #[cfg(feature = "message")]
    pub(crate) async fn waits_for_its_first(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.waiting > 0 && !state.has_run {
                    state.is_over = true;
                    return;
                }
            }
            changed.await;
        }
    }

    fn share(self: &Arc<Self>) -> Option<BodyPermit> {
        let mut state = self.state();
        if state.running == 0 {
            return None;
        }
        state.running += 1;
        Some(BodyPermit(self.clone()))
    }

    /// `None` if the handler is over: the permit goes back.
    fn hold(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Option<BodyPermit> {
        {
            let mut state = self.state();
            if state.is_over {
                return None;
            }
            state.running += 1;
            state.has_run = true;
            // Two calls of this handler may have got one each: the second goes back.
            if !std::mem::replace(&mut state.has_permit, true) {
                permit.forget();
            }
        }
        self.changed.notify_waiters();
        Some(BodyPermit(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes leave for one body, if a handler's permit limits them.
pub(crate) async fn permitted(handler: Option<&Arc<HandlerPermit>>) -> Option<BodyPermit> {
    let handler = handler?;
    match handler.try_acquire() {
        Some(permit) => Some(permit),
        None => Some(Box::pin(handler.acquire()).await),
    }
}

/// Leave for one body, until this is dropped.
pub(crate) struct BodyPermit(Arc<HandlerPermit>);

impl Drop for BodyPermit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running -= 1;
        if state.running == 0 && std::mem::take(&mut state.has_permit) {
            self.0.bodies.add_permits(1);
        }
    }
}

/// Counts a call that waits, until this is dropped.
struct Waits<'p>(&'p HandlerPermit);

impl<'p> Waits<'p> {
    fn new(permit: &'p HandlerPermit) -> Self {
        permit.state().waiting += 1;
        permit.changed.notify_waiters();
        Self(permit)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(all(test, feature = "message"))]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_handler_that_is_given_up_while_it_waits_starts_no_body_after_that() {
        let bodies = Arc::new(Semaphore::new(1));
        let (running, handler) = (HandlerPermit::new(&bodies), HandlerPermit::new(&bodies));
        let runs = running.try_acquire().unwrap();
        let mut waits = Box::pin(handler.acquire());
        assert!(waits.as_mut().now_or_never().is_none());
        handler.waits_for_its_first().await;
        // The permit is free before the handler is dropped.
        drop(runs);
        assert!(waits.as_mut().now_or_never().is_none() && handler.try_acquire().is_none());
        drop(waits);
        assert_eq!(bodies.available_permits(), 1);
    }
}
