//! The loop over a stream of messages.
//!
//! Owns how many messages are taken, and when no more are. `work` handles one of them.

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

/// The first pause after an error of a stream that gives nothing else, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// Decides by the error of a handler what becomes of its message: see [`Consumer::dispose`].
type Choose<E> = dyn Fn(&E, u32, Disposition) -> Disposition + Send + Sync;

/// How the messages of a stream are handled.
///
/// For each message the handler runs, and the message is settled as [`settle`](super::settle) says:
/// acknowledged only once its result is recorded (or cannot be: see [`Outcome::Unrecorded`](idem_runtime::Outcome)).
/// A handler that panics is a retry of its own message, up to [`max_tries`](Self::max_tries), and no other
/// notices.
///
/// While the store fails, the messages that were taken stay here and are tried again with growing pauses (1 s to
/// 30 s), no more are taken, and the broker hears nothing of them but [`Delivery::extend`]: an outage spends no
/// deliveries. A duplicate of a message that is in work in the same consumer waits for that one.
///
/// All run in the task that [`run`](Self::run) is in: nothing need be `Send` or `'static`, and what comes
/// out is `Send` where the stream, the handler and the [`Delivery`] are (if the compiler says of a spawned
/// one that an implementation is not general enough, box the stream: `StreamExt::boxed`). A handler that blocks its thread
/// therefore holds up the others, and the extensions of their messages; [`in_tasks`](super::in_tasks) gives each
/// handler a task of its own, `detach` in the attribute each body.
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
/// // As a broker's client gives them; `Message` has the trait `Delivery`.
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
    /// Ten handlers at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many handlers run at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many messages are held at a time, never fewer than [`concurrency`](Self::concurrency). No more are taken from
    /// the stream.
    ///
    /// Unless set, as many as those, and beside them those that wait for others: behind an earlier
    /// message of their [group](Delivery::group), for their own retry in an order, or for a duplicate; together
    /// up to 100 times as many. So one group that is held up does not stop the others, where the broker delivers
    /// that many (RabbitMQ: its source's `prefetch`). Where it is set, all count: a group that is held up can fill
    /// it, and then stops the consumer.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.settings.prefetch = Some(messages);
        self
    }

    /// How long running handlers are given at the shutdown; 20 s unless set. Those that are not done by
    /// then are dropped, their keys released, and their messages given back.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long the shutdown waits, after the last handler, for results that are still to be recorded and claims to be released; 10 s
    /// unless set. See [`idem::drain`](idem_runtime::drain).
    pub fn drain(mut self, patience: Duration) -> Self {
        self.settings.drain = patience;
        self
    }

    /// Calls [`Delivery::extend`] this often for each message that is held; never, unless set. A third of
    /// the time after which the broker delivers a message again is good; at least 1 ms.
    pub fn extend_every(mut self, interval: Duration) -> Self {
        self.settings.extend_every = Some(interval);
        self
    }

    /// How long the broker may take to answer what it is told of a message; 30 s unless set.
    pub fn broker_timeout(mut self, timeout: Duration) -> Self {
        self.settings.broker_timeout = timeout;
        self
    }

    /// How long after its first delivery the broker may still deliver a message again: its retention, and
    /// the time until a person redrives the dead letters.
    ///
    /// An operation whose `ttl` is shorter forgets a result while a duplicate may still come. It is
    /// reported, once, by the event `ttl_below_horizon` and in [`Summary::forgetful`]. Seen are the
    /// operations that a handler calls itself, not those in their bodies.
    pub fn redelivery_horizon(mut self, horizon: Duration) -> Self {
        self.settings.horizon = Some(horizon);
        self
    }

    /// How often a message is tried whose handler panics, or fails without an idempotent call that failed, before
    /// it is rejected; 10 unless set. At least 1.
    ///
    /// Counted are the tries in its place in an order, [`Delivery::deliveries`], and for a panic inside an
    /// idempotent call its attempts. Without `deliveries`, a message in no order whose handler never comes to
    /// its call is retried for ever. A call that fails in its body is limited by `max_attempts` of its operation.
    pub fn max_tries(mut self, tries: u32) -> Self {
        self.settings.max_tries = tries.max(1);
        self
    }

    /// Counts into this while it runs. Several consumers with the same one add up.
    pub fn progress(mut self, progress: &Progress) -> Self {
        self.progress = progress.clone();
        self
    }

    /// Lets the error of a handler decide what becomes of its message. `choose` gets the error, the number of the attempt, and what
    /// [`settle`](super::settle) proposes. For an error without an idempotent call, the attempt is the number of the try.
    ///
    /// It is not called where no body failed (in flight, mismatch, the store is down, ..): there only the proposal knows the message's
    /// state. An error that the operation's `terminal` keeps comes again with every delivery, so retrying it changes nothing.
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

    /// What becomes of the message of a handler that failed.
    pub(super) fn chosen(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition {
        self.choose.as_ref().map_or(proposed, |choose| choose(error, attempt, proposed))
    }

    /// Handles the messages of a stream until it ends, and all it has taken are done.
    ///
    /// An error of the stream is reported by the event `stream_failed`, and the stream is polled again, after a
    /// pause where errors follow one another.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the handlers, releases their keys in the background, and tells the broker
    /// nothing: it delivers the messages again by its own rule. [`run_until`](Self::run_until) ends in
    /// good order.
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

    /// The same, until `shutdown` ends: then nothing more is taken and no handler begun, those that run
    /// have the [`grace`](Self::grace) to finish, and what is left is given back to the broker. Messages
    /// in an order are given back in that order.
    ///
    /// The stream is dropped when `shutdown` ends. What its client has fetched and the stream not given
    /// yet comes back by the broker's own rule: keep that buffer small.
    ///
    /// At last, [`drain`](idem_runtime::drain) has the time of [`Consumer::drain`] for what this process still has to record or release; what is
    /// left then is in [`Summary::left`], and in the event `not_drained`.
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

    /// The same. With a `room` the stream is polled all the time, and asks its broker for no more than that.
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
    /// A message is done with, and leaves its place in an order.
    Done(Option<Place>),
    /// The next message; `Some(None)` for an error of the stream.
    Given(Option<Option<M>>),
    Over,
}
