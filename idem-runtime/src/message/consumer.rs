//! The loop over a stream of messages.
//!
//! Owns how many messages are taken, and when no more are. What is done for one stands in `work`.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep};

use super::lanes::Lanes;
use super::work::{Done, Stage, Works};
use super::{Delivery, Disposition, Incoming, Summary};

/// Handles the messages of a stream until it ends: as [`Consumer::run`] with what [`Consumer::new`] sets.
///
/// ```
/// # use idem_runtime as idem;
/// # use std::time::Duration;
/// # struct Message(String);
/// # impl idem::message::Delivery for Message {
/// #     type Error = std::convert::Infallible;
/// #     async fn acknowledge(self) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn retry(self, _: Duration) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn reject(self, _: idem::message::Reason) -> Result<(), Self::Error> { Ok(()) }
/// #     async fn give_back(self) -> Result<(), Self::Error> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use futures_util::stream;
/// use idem::{Error, MemoryStore, Operation, message};
///
/// let store = MemoryStore::new();
/// let ship = Operation::new("orders.ship");
/// // As a broker's client gives them; `Message` has the trait `Delivery`.
/// let messages = stream::iter([Message("42".into()), Message("43".into())]);
/// let summary = message::run(messages, |message: &Message| {
///     ship.run(&store, message.0.clone(), || async { Ok::<_, Error>("parcel 7".to_owned()) })
/// })
/// .await;
/// assert_eq!(summary.acknowledged, 2);
/// # }
/// ```
pub async fn run<S, H, F, T, E>(messages: S, handler: H) -> Summary
where
    S: Stream,
    S::Item: Incoming,
    H: Fn(&<S::Item as Incoming>::Message) -> F,
    F: Future<Output = Result<T, E>>,
{
    Consumer::new().run(messages, handler).await
}

/// What is to be done with a message whose handler failed: see [`Consumer::dispose`].
///
/// For every closure of this form, and for [`Proposed`].
pub trait Choose<E> {
    /// What is to be done, where [`settle`](super::settle) proposes this for this attempt.
    fn choose(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition;
}

/// Does as [`settle`](super::settle) proposes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proposed;

impl<E> Choose<E> for Proposed {
    fn choose(&self, _: &E, _: u32, proposed: Disposition) -> Disposition {
        proposed
    }
}

impl<E, F: Fn(&E, u32, Disposition) -> Disposition> Choose<E> for F {
    fn choose(&self, error: &E, attempt: u32, proposed: Disposition) -> Disposition {
        self(error, attempt, proposed)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    concurrency: usize,
    prefetch: Option<usize>,
    grace: Duration,
    pub(super) extend_every: Option<Duration>,
    pub(super) broker_timeout: Duration,
    pub(super) horizon: Option<Duration>,
}

/// How the messages of a stream are handled.
///
/// For each message the handler is run, and the broker told what [`settle`](super::settle) makes of how it
/// ended: acknowledged only once its result is recorded (or cannot be: see
/// [`Outcome::Unrecorded`](crate::Outcome)). A handler that panics is a retry of its own message, and no
/// other notices.
///
/// All run in the task that [`run`](Self::run) is in: nothing need be `Send` or `'static`, and what comes
/// out is `Send` where the stream, the handler and the [`Delivery`] are (if the compiler says of a spawned
/// one that an implementation is not general enough, box the stream: `StreamExt::boxed`). A handler that blocks its thread
/// therefore holds up the others, and the extensions of their messages; `detach` in the attribute gives the
/// body a task of its own.
#[derive(Clone, Debug)]
#[must_use = "a consumer does nothing until it is `run`"]
pub struct Consumer<C = Proposed> {
    settings: Settings,
    choose: C,
}

impl Default for Consumer {
    fn default() -> Self {
        let settings = Settings {
            concurrency: 10,
            prefetch: None,
            grace: Duration::from_secs(20),
            extend_every: None,
            broker_timeout: Duration::from_secs(30),
            horizon: None,
        };
        Self { settings, choose: Proposed }
    }
}

impl Consumer {
    /// Ten handlers at a time, and no more messages than that.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<C> Consumer<C> {
    /// How many handlers run at a time; at least one, and 10 unless set.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many messages are held at a time: those whose handlers run, and those that wait for their turn
    /// in an order. No more are taken from the stream. As many as [`concurrency`](Self::concurrency)
    /// unless set, and never fewer.
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

    /// Calls [`Delivery::extend`] this often for each message that is held; never, unless set. A third of
    /// the time after which the broker delivers a message again is good; at least 1 ms.
    pub fn extend_every(mut self, interval: Duration) -> Self {
        self.settings.extend_every = Some(interval.max(Duration::from_millis(1)));
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

    /// Has the handler's error choose, as [`settle_with`](super::settle_with) does: a closure, or
    /// [`Dispose::disposition`](super::Dispose::disposition).
    pub fn dispose<F>(self, choose: F) -> Consumer<F> {
        Consumer { settings: self.settings, choose }
    }

    /// Handles the messages of a stream until it ends, and all it has taken are done.
    ///
    /// An error of the stream is reported by the event `stream_failed`, and the stream asked again, after
    /// a pause where errors follow one another.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the handlers, releases their keys in the background, and tells the broker
    /// nothing: it delivers the messages again by its own rule. [`run_until`](Self::run_until) ends in
    /// good order.
    pub async fn run<S, H, F, T, E>(self, messages: S, handler: H) -> Summary
    where
        S: Stream,
        S::Item: Incoming,
        H: Fn(&<S::Item as Incoming>::Message) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        self.run_until(pending(), messages, handler).await
    }

    /// The same, until `shutdown` ends: then nothing more is taken and no handler begun, those that run
    /// have the [`grace`](Self::grace) to finish, and what is left is given back to the broker. Messages
    /// in an order are given back in that order.
    ///
    /// The stream is dropped when `shutdown` ends. What its client has fetched and the stream not given
    /// yet comes back by the broker's own rule: keep that buffer small.
    pub async fn run_until<S, H, F, T, E>(
        self,
        shutdown: impl Future<Output = ()>,
        messages: S,
        handler: H,
    ) -> Summary
    where
        S: Stream,
        S::Item: Incoming,
        H: Fn(&<S::Item as Incoming>::Message) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let (stage, watched) = watch::channel(Stage::Open);
        let works = Works {
            settings: &self.settings,
            handler: &handler,
            choose: &self.choose,
            permits: Semaphore::new(self.settings.concurrency),
            stage: watched,
        };
        let prefetch = self.settings.prefetch.unwrap_or(0).max(self.settings.concurrency);
        let mut end = End { stage, grace: None };
        let mut shutdown = pin!(Some(shutdown));
        let mut messages = pin!(Some(messages));
        let mut source = Source::default();
        let mut running = FuturesUnordered::new();
        let mut lanes = Lanes::default();
        let mut summary = Summary::default();
        loop {
            let step = poll_fn(|cx| {
                if shutdown.as_mut().as_pin_mut().is_some_and(|shutdown| shutdown.poll(cx).is_ready()) {
                    return Poll::Ready(Step::Shutdown);
                }
                end.poll(cx);
                if let Poll::Ready(Some(done)) = running.poll_next_unpin(cx) {
                    return Poll::Ready(Step::Done(done));
                }
                match messages.as_mut().as_pin_mut() {
                    Some(open) if running.len() < prefetch => source.poll(open, cx).map(Step::Given),
                    None if running.is_empty() => Poll::Ready(Step::Over),
                    _ => Poll::Pending,
                }
            });
            match step.await {
                Step::Done(done) => absorb(&mut summary, &mut lanes, done),
                Step::Given(Some(Ok(message))) => {
                    let place = message.group().map(|group| lanes.enter(group));
                    running.push(works.one(message, place));
                }
                Step::Given(Some(Err(()))) => summary.stream_errors += 1,
                Step::Given(None) => messages.set(None),
                Step::Shutdown => {
                    shutdown.set(None);
                    messages.set(None);
                    end.begin(self.settings.grace);
                }
                Step::Over => return summary,
            }
        }
    }
}

/// How a consumer comes to its end.
struct End {
    stage: watch::Sender<Stage>,
    grace: Option<Pin<Box<Sleep>>>,
}

impl End {
    fn begin(&mut self, grace: Duration) {
        self.stage.send_replace(Stage::Closing);
        self.grace = Some(Box::pin(sleep(grace)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.grace.as_mut().is_some_and(|grace| grace.as_mut().poll(cx).is_ready()) {
            self.grace = None;
            self.stage.send_replace(Stage::Closed);
        }
    }
}

/// What a consumer does next.
enum Step<M> {
    Shutdown,
    Done(Done),
    Given(Option<Result<M, ()>>),
    Over,
}

/// Takes from the stream, with pauses after errors.
#[derive(Default)]
struct Source {
    pauses: Option<ExponentialBackoff>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Source {
    fn poll<S>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<<S::Item as Incoming>::Message, ()>>>
    where
        S: Stream,
        S::Item: Incoming,
    {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let given = ready!(stream.poll_next(cx)).map(Incoming::incoming);
        Poll::Ready(given.map(|given| {
            given.inspect(|_| self.pauses = None).map_err(|error| {
                tracing::warn!(target: "idem", event = "stream_failed", %error, "no message, but an error");
                let pauses = self.pauses.get_or_insert_with(|| pauses().build());
                self.pause = Some(Box::pin(sleep(pauses.next().unwrap_or(LONGEST_PAUSE))));
            })
        }))
    }
}

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between errors of a stream that gives nothing else.
fn pauses() -> ExponentialBuilder {
    let first = Duration::from_millis(10);
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(LONGEST_PAUSE).without_max_times()
}

fn absorb(summary: &mut Summary, lanes: &mut Lanes, done: Done) {
    summary.add(&done.summary);
    if let Some(place) = &done.place {
        lanes.leave(place);
    }
    for (operation, ttl) in done.summary.forgetful {
        if summary.forgetful.contains_key(&operation) {
            continue;
        }
        tracing::warn!(
            target: "idem",
            event = "ttl_below_horizon",
            operation,
            ttl_s = ttl.as_secs(),
            "results are kept for a shorter time than the broker may deliver a message again"
        );
        summary.forgetful.insert(operation, ttl);
    }
}
