//! The loop over a stream of messages.
//!
//! Owns the rules for how many messages the consumer takes, and for when it stops taking messages. The module
//! `work` handles one message.

use std::fmt::{self, Display};
use std::future::{pending, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::gate::Gate;
use super::held_keys::HeldKeys;
use super::lanes::{Lanes, Place};
use super::report;
use super::settings::Settings;
use super::work::{Stage, Works};
use super::{Delivery, Disposition, Progress, Room, Summary, pauses};

/// The pause after the first error of the stream, and the longest pause. The pause grows while one error
/// follows another.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// Decides from the error of a handler how its message is settled: see [`Consumer::dispose`].
type Choose<E> = dyn Fn(&E, u32, Disposition) -> Disposition + Send + Sync;

/// How the messages of a stream are handled.
///
/// The handler runs for each message, and the message is settled as [`settle`](super::settle) says. If the
/// handler returns the result of its idempotent call, the message is acknowledged only in these cases: the
/// result is recorded, the result cannot be recorded (see [`Outcome::Unrecorded`](idem_runtime::Outcome)), or
/// the body is unprotected. If a handler panics, only its own message is retried, up to
/// [`max_tries`](Self::max_tries).
///
/// While the store fails, the consumer keeps the messages that it has taken, tries them again with growing
/// pauses (1 s to 30 s), and takes no more messages. It calls only [`Delivery::extend`] for the kept
/// messages, so an outage uses up no deliveries.
///
/// If the call of a message is in flight in another handler of this consumer, the message waits until that
/// handler has ended.
///
/// All handlers run in the task of [`run`](Self::run). So nothing needs to be `Send` or `'static`, and the
/// future is `Send` if the stream, the handler and the [`Delivery`] are `Send`. If the compiler refuses to
/// spawn the future because an implementation "is not general enough", box the stream with
/// `StreamExt::boxed`.
///
/// A handler that blocks its thread also stops the other handlers, and the extensions of their messages.
/// [`in_tasks`](super::in_tasks) runs each handler in its own task, and `detach` in the attribute runs each
/// body in its own task.
///
/// ```
/// # use std::time::Duration;
/// # struct Message(String);
/// # impl idem::message::Delivery for Message {
/// #     type Error = std::convert::Infallible;
/// #     async fn acknowledge(&self) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn retry(&self, _: Duration) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn reject(&self, _: &idem::message::DeadLetter) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn give_back(&self) -> Result<(), Self::Error> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use futures_util::stream;
/// use idem::message::Consumer;
/// use idem::{Error, MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let ship = Operation::new("orders.ship");
/// // A broker's client gives such a stream. `Message` implements `Delivery`.
/// let messages = stream::iter([Ok(Message("42".into())), Err("the connection is lost"), Ok(Message("43".into()))]);
/// let handler = |message: &Message| {
///     ship.run(&store, message.0.clone(), || async { Ok::<_, Error>("parcel 7".to_owned()) })
/// };
/// let summary = Consumer::new().run(messages, handler).await;
/// assert_eq!(summary.acknowledged, 2);
/// # }
/// ```
#[must_use = "a consumer does nothing until it is `run`"]
pub struct Consumer<E> {
    pub(super) settings: Settings,
    pub(super) progress: Progress,
    choose: Option<Arc<Choose<E>>>,
}

impl<E> Default for Consumer<E> {
    fn default() -> Self {
        Self { settings: Settings::default(), progress: Progress::new(), choose: None }
    }
}

impl<E> Clone for Consumer<E> {
    fn clone(&self) -> Self {
        let Self { settings, progress, choose } = self;
        Self { settings: settings.clone(), progress: progress.clone(), choose: choose.clone() }
    }
}

impl<E> fmt::Debug for Consumer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<E> Consumer<E> {
    /// A consumer that runs ten handlers at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many handlers run at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many messages the consumer holds at a time, never fewer than [`concurrency`](Self::concurrency).
    /// At the limit, the consumer takes no more messages from the stream.
    ///
    /// Unless set, the consumer holds as many messages as `concurrency`, and in addition messages that wait.
    /// A message waits for an earlier message of its [group](Delivery::group), for the running handler of a
    /// duplicate, or for its own retry if the consumer keeps it until then. With the waiting messages, the
    /// consumer holds up to 100 times `concurrency`. So one waiting group does not stop the other groups, if
    /// the broker delivers that many messages (for RabbitMQ, set the source's `prefetch`).
    ///
    /// If set, waiting messages count, too. Then one waiting group can use up the limit, and stop the
    /// consumer.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.settings.prefetch = Some(messages);
        self
    }

    /// How long the shutdown waits for running handlers; 20 s unless set. Then the consumer drops the
    /// handlers that still run, releases their keys, and gives their messages back.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long the shutdown waits after the last handler until all results are recorded and all claims are
    /// released; 10 s unless set. See [`idem::drain`](idem_runtime::drain).
    pub fn drain(mut self, patience: Duration) -> Self {
        self.settings.drain = patience;
        self
    }

    /// Calls [`Delivery::extend`] at this interval, at least 1 ms, for each message that the consumer holds.
    /// Unless set here or by the broker's crate, the consumer never calls it. A good value is a third of the
    /// time after which the broker delivers a message again.
    pub fn extend_every(mut self, interval: Duration) -> Self {
        self.settings.extend_every = Some(interval);
        self
    }

    /// How long the broker may take to answer a request about a message; 30 s unless set.
    pub fn broker_timeout(mut self, timeout: Duration) -> Self {
        self.settings.broker_timeout = timeout;
        self
    }

    /// The time after a message's first delivery in which the broker may deliver the message again. This
    /// includes the broker's retention, and the time until a person redrives the dead letters.
    ///
    /// An operation with a shorter `ttl` forgets a result while a duplicate may still come. The consumer
    /// reports such an operation once, by the event `ttl_below_horizon`, and in [`Summary::forgetful`]. It
    /// checks only operations that the handler itself calls, not operations that are called in the body of
    /// another operation.
    pub fn redelivery_horizon(mut self, horizon: Duration) -> Self {
        self.settings.horizon = Some(horizon);
        self
    }

    /// How often the consumer tries a message before it rejects the message; at least 1, and 10 unless set.
    /// The limit applies to a message whose handler panics, or fails although no idempotent call in it
    /// failed. It also applies to a message whose call times out, is misconfigured, or has a result that the
    /// store refuses in the caller's transaction.
    ///
    /// The number of the try is [`Delivery::deliveries`], plus the retries that the consumer makes without
    /// the broker. For a panic inside an idempotent call, the attempt of the call counts if it is higher.
    /// If `deliveries` is `None`, redeliveries by the broker do not count. Then a message that the broker
    /// delivers again is retried for ever if its handler never reaches its call. A call that fails in its
    /// body is limited by `max_attempts` of its operation.
    pub fn max_tries(mut self, tries: u32) -> Self {
        self.settings.max_tries = tries.max(1);
        self
    }

    /// Counts into this summary while the consumer runs. Several consumers can share a summary, and their
    /// counts add up.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.progress = progress.clone();
        self
    }

    /// Lets the error of a handler decide how its message is settled. `choose` gets the error, the number of
    /// the attempt, and what [`settle`](super::settle) proposes. If the handler made no idempotent call, the
    /// attempt is the number of the try.
    ///
    /// `choose` is not called if idem refused the call (in flight, mismatch, the store is down, ..). In these
    /// cases only the proposal takes the state of the key into account. If the operation's
    /// `terminal` keeps an error, every delivery gets this error again, so a retry changes nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use idem::message::{Consumer, Disposition, Reason};
    ///
    /// # #[allow(dead_code)]
    /// enum ShipError {
    ///     NoOrder,
    ///     Closed,
    ///     Idem(idem::Error),
    /// }
    ///
    /// let consumer = Consumer::new().dispose(|error: &ShipError, attempt, proposed| match error {
    ///     ShipError::NoOrder => Disposition::reject(Reason::Terminal),
    ///     ShipError::Closed if attempt < 3 => Disposition::retry(Duration::from_secs(3600)),
    ///     ShipError::Closed | ShipError::Idem(_) => proposed,
    /// });
    /// ```
    pub fn dispose(
        mut self,
        choose: impl Fn(&E, u32, Disposition) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.choose = Some(Arc::new(choose));
        self
    }

    /// How the message of a failed handler is settled.
    pub(super) fn chosen(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition {
        self.choose.as_ref().map_or(proposed, |choose| choose(error, attempt, proposed))
    }

    /// Handles the messages of a stream until the stream ends and all messages taken from it are settled.
    ///
    /// If the stream returns an error, the consumer emits the event `stream_failed`, and polls the stream
    /// again after a pause. The pause grows while errors follow one another.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the handlers, releases their keys in the background, and settles nothing.
    /// The broker then delivers the messages again by its own rule. To give the messages back instead, use
    /// [`run_until`](Self::run_until).
    pub async fn run<M, X, F, T>(
        self,
        messages: impl Stream<Item = Result<M, X>>,
        handler: impl Fn(&M) -> F,
    ) -> Summary
    where
        M: Delivery,
        X: Display,
        F: Future<Output = Result<T, E>>,
        E: Display,
    {
        self.run_until(pending(), messages, handler).await
    }

    /// As [`run`](Self::run), but stops when `shutdown` ends. Then the consumer takes no more messages and
    /// starts no more handlers. Running handlers have the [`grace`](Self::grace) to finish, and the consumer
    /// gives the other messages back to the broker. It gives back the messages of a group in their order.
    ///
    /// The stream is dropped when `shutdown` ends. If the broker's client has fetched messages that the
    /// stream has not returned yet, the broker delivers them again by its own rule. So keep the client's
    /// buffer small.
    ///
    /// Finally, [`drain`](idem_runtime::drain) waits up to [`Consumer::drain`] for the results and releases
    /// that this process still has to write. [`Summary::left`] and the event `not_drained` say what is left
    /// after that.
    pub async fn run_until<M, X, F, T>(
        self,
        shutdown: impl Future<Output = ()>,
        messages: impl Stream<Item = Result<M, X>>,
        handler: impl Fn(&M) -> F,
    ) -> Summary
    where
        M: Delivery,
        X: Display,
        F: Future<Output = Result<T, E>>,
        E: Display,
    {
        self.work(shutdown, messages, None, Delivery::group, handler).await
    }

    /// As [`run_until`](Self::run_until). With a `room`, the stream is polled even if the consumer is full.
    /// Then the stream itself must request no more messages from its broker than there is room for.
    pub(super) async fn work<M, X, F, T>(
        self,
        shutdown: impl Future<Output = ()>,
        messages: impl Stream<Item = Result<M, X>>,
        room: Option<&Room>,
        group: impl Fn(&M) -> Option<String>,
        handler: impl Fn(&M) -> F,
    ) -> Summary
    where
        M: Delivery,
        X: Display,
        F: Future<Output = Result<T, E>>,
        E: Display,
    {
        let (stage, watched) = watch::channel(Stage::Open);
        let works = Works {
            consumer: &self,
            handler: &handler,
            permits: Semaphore::new(self.settings.concurrency),
            stage: watched,
            gate: Gate::new(),
            held: Arc::new(HeldKeys::default()),
            idle: AtomicUsize::new(0),
            #[cfg(feature = "metrics")]
            counted: report::Queues::default(),
            messages: PhantomData,
        };
        let end = async {
            shutdown.await;
            stage.send_replace(Stage::Closing);
            sleep(self.settings.grace).await;
            stage.send_replace(Stage::Closed);
        };
        let mut end = pin!(end.fuse());
        let mut messages = pin!(Some(paused(messages)));
        let mut running = FuturesUnordered::new();
        let mut lanes = Lanes::default();
        let mut is_shut_down = false;
        loop {
            let step = poll_fn(|cx| {
                let _ = end.as_mut().poll(cx);
                if !is_shut_down && *works.stage.borrow() > Stage::Open {
                    return Poll::Ready(Step::Shutdown);
                }
                if let Poll::Ready(Some(place)) = running.poll_next_unpin(cx) {
                    return Poll::Ready(Step::Done(place));
                }
                let idle = works.idle.load(Ordering::Relaxed);
                let free = if works.gate.is_open() { self.settings.free(running.len(), idle) } else { 0 };
                let polls = room.map_or(free > 0, |room| {
                    room.set(free);
                    true
                });
                match messages.as_mut().as_pin_mut() {
                    Some(open) if polls => open.poll_next(cx).map(Step::Given),
                    None if running.is_empty() => Poll::Ready(Step::Over),
                    _ => Poll::Pending,
                }
            });
            match step.await {
                Step::Done(place) => place.into_iter().for_each(|place| lanes.leave(place)),
                Step::Given(Some(Some(message))) => {
                    self.progress.count(|summary| summary.taken += 1);
                    let group = catch_unwind(AssertUnwindSafe(|| group(&message))).map_err(drop);
                    let order = group.map(|group| group.map(|group| lanes.enter(group)));
                    running.push(works.one(message, order));
                }
                Step::Given(Some(None)) => self.progress.count(|summary| summary.stream_errors += 1),
                Step::Given(None) => messages.set(None),
                Step::Shutdown => {
                    messages.set(None);
                    is_shut_down = true;
                }
                Step::Over => break,
            }
        }
        if is_shut_down {
            let undrained = idem_runtime::drain(self.settings.drain).await;
            report::drained(undrained);
            self.progress.count(|summary| summary.left = undrained);
        }
        self.progress.summary()
    }
}

/// The messages of a stream. An error is reported, and becomes `None` after a pause.
fn paused<M, X: Display>(messages: impl Stream<Item = Result<M, X>>) -> impl Stream<Item = Option<M>> {
    let mut waits = pauses(PAUSES);
    messages.then(move |item| {
        let mut pause = None;
        match &item {
            Ok(_) => waits = pauses(PAUSES),
            Err(error) => {
                tracing::warn!(target: "idem", event = "stream_failed", %error, "no message, but an error");
                pause = waits.next();
            }
        }
        let message = item.ok();
        async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            message
        }
    })
}

/// What a consumer does next.
enum Step<M> {
    Shutdown,
    /// A message was settled with the broker. If it has a place in a group, it leaves that place.
    Done(Option<Place>),
    /// The next message; `Some(None)` after an error of the stream, and `None` at its end.
    Given(Option<Option<M>>),
    Over,
}
