//! One message, from its delivery to its settlement with the broker.
//!
//! Owns the rule that each message is settled once with the broker, and not before its handler has ended.
//! This module does not read the consumer's stream.

use std::fmt::Display;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use idem_core::RecordKey;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;

use super::error_text;
use super::gate::Gate;
use super::held_keys::HeldKeys;
use super::lanes::Place;
use super::observation::Observation;
use super::report::{self, About, guarded};
use super::{Cause, Consumer, Decision, Delivery, Disposition, Reason, Tries, settle_by};
use idem_runtime::{ErrorKind, Outcome};

/// The error text of a dead letter after a panic. The panic's own text is left out, because it may contain
/// anything.
const PANICKED: &str = "the handler panicked";

/// How long to wait for the background work of a dropped call.
pub(super) const AFTERMATH: Duration = Duration::from_secs(5);

/// How far a consumer's shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Messages are taken and handled.
    Open,
    /// No handler starts any more.
    Closing,
    /// No handler runs any more.
    Closed,
}

/// How the worker settles a message, and why. `None`: the worker gives the message back.
pub(super) type Verdict = Option<(Disposition, Cause)>;

/// The state that all messages of a consumer share.
pub(super) struct Works<'w, M, H, E> {
    pub(super) consumer: &'w Consumer<E>,
    pub(super) handler: &'w H,
    /// One permit for each handler that may run.
    pub(super) permits: Semaphore,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) gate: Gate,
    pub(super) held: Arc<HeldKeys>,
    /// How many messages wait for other messages, or for the end of their pause.
    pub(super) idle: AtomicUsize,
    #[cfg(feature = "metrics")]
    pub(super) counted: report::Queues,
    pub(super) messages: PhantomData<fn(M)>,
}

/// What to do after a handler.
enum Next {
    Settle(Disposition, Cause),
    /// Run the handler again after the handler that holds this key has ended.
    Behind(RecordKey),
    /// Run the handler again when the store can be used.
    Hold(Cause),
}

impl Next {
    /// For the span of the handler: how the message is settled, or that it waits.
    const fn word(&self) -> (&'static str, Option<Cause>) {
        match self {
            Self::Settle(disposition, cause) => (disposition.as_str(), Some(*cause)),
            Self::Behind(_) => ("wait", None),
            Self::Hold(cause) => ("hold", Some(*cause)),
        }
    }
}

impl<M, H, F, T, E> Works<'_, M, H, E>
where
    M: Delivery,
    H: Fn(&M) -> F,
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    /// Does all work for one message, and returns the message's place in its group, if it has one. `order` is
    /// an error if [`Delivery::group`] panicked.
    pub(super) async fn one(&self, message: M, order: Result<Option<Place>, ()>) -> Option<Place> {
        let mut about = About::message(&message);
        #[cfg(feature = "metrics")]
        report::count_from_zero(&self.counted, &about.queue);
        let limit = self.consumer.settings.max_tries;
        let mut tries = Tries { number: guarded(|| message.deliveries()).unwrap_or(1).max(1), limit };
        let mut rounds = self.rounds();
        let (next, place) = match order {
            Ok(mut place) => {
                // This future is on the heap, because it contains the caller's handler.
                let deciding = Box::pin(self.decide(&message, place.as_mut(), &mut tries, &mut about));
                (self.extended(&message, &mut rounds, deciding).await, place)
            }
            Err(()) => {
                // The message has no place in its group, so this worker cannot retry it. If the broker cannot
                // deliver the message again either, the message is rejected.
                let here = guarded(|| Some(message.retries_in_place())) == Some(true);
                let limit = if here { tries.number } else { limit };
                (Some(self.panicked(&about, Tries { limit, ..tries })), None)
            }
        };
        let is_last = || guarded(|| Some(message.is_last_delivery())) == Some(true);
        let verdict = match next {
            Some((Disposition::Retry { .. }, cause)) if is_last() => {
                Some((Disposition::reject(Reason::Exhausted), cause))
            }
            other => other,
        };
        self.settle(&message, verdict, tries.number, &about, rounds).await;
        place
    }

    /// Runs the handler when it is the message's turn. Runs it again after a wait for the store or for a
    /// duplicate. If the message is retried in its place, also runs it again after the pause. Returns how the
    /// message is settled, or `None` if the shutdown came first.
    async fn decide(
        &self,
        message: &M,
        mut place: Option<&mut Place>,
        tries: &mut Tries,
        about: &mut About,
    ) -> Verdict {
        let delay = guarded(|| Some(message.delay())).unwrap_or_default();
        if !delay.is_zero() {
            let _idle = Idle::new(&self.idle);
            self.unless_closing(sleep(delay)).await?;
        }
        let in_place = place.is_some() || guarded(|| Some(message.retries_in_place())) == Some(true);
        if let Some(place) = &mut place {
            let _idle = Idle::new(&self.idle);
            // The message waits even during the shutdown, because it must not be given back and then overtake
            // a message whose handler still runs.
            place.turn().await;
        }
        let extended = self.consumer.settings.extend_every.is_some();
        let mut pauses = Gate::pauses();
        let (mut held_up, mut held) = (None, None);
        loop {
            let permit = self.unless_closing(self.permits.acquire()).await?.ok()?;
            let span = report::span(about);
            let handling = self.handle(message, *tries, about).instrument(span.clone());
            let next = handling.await?;
            report::came_to(&span, next.word());
            drop(permit);
            // If one run after another finds the store failing, the message stays held between these runs.
            held = matches!(next, Next::Hold(_)).then(|| held.unwrap_or_else(|| self.gate.hold()));
            match next {
                Next::Behind(key) => {
                    let _idle = Idle::new(&self.idle);
                    self.unless_closing(self.held.freed(&key)).await?;
                }
                Next::Hold(cause) => {
                    self.consumer.progress.count(|summary| summary.held += 1);
                    report::held(about, cause, self.gate.close(), extended);
                    self.unless_closing(self.gate.wait(&mut pauses)).await?;
                }
                Next::Settle(Disposition::Retry { after }, cause) if in_place => {
                    self.consumer.progress.count(|summary| summary.retried += 1);
                    report::count(about, "retry", cause.as_str());
                    if place.is_some() {
                        held_up.get_or_insert_with(|| report::group_held_up(about, extended));
                    }
                    pauses = Gate::pauses();
                    tries.number = tries.number.saturating_add(1);
                    let _idle = Idle::new(&self.idle);
                    self.unless_closing(sleep(after)).await?;
                }
                Next::Settle(disposition, cause) => return Some((disposition, cause)),
            }
        }
    }

    /// Runs the handler; `None` if the consumer dropped it because the grace was over.
    async fn handle(&self, message: &M, tries: Tries, about: &mut About) -> Option<Next> {
        let Consumer { settings, progress, .. } = self.consumer;
        let horizon = settings.horizon.map(|horizon| (horizon, progress.clone()));
        let observation = Arc::new(Observation::of_handler(&self.held, horizon));
        about.error = None;
        let ended = {
            let call = async { (self.handler)(message).await };
            let choose = |error: &E, attempt, proposed| self.consumer.chosen(error, attempt, proposed);
            let call = async {
                let (value, decision) = settle_by(&observation, call, tries, choose).await;
                if let Err(error) = &value {
                    about.error = guarded(|| error_text::of(error));
                }
                decision
            };
            let call = AssertUnwindSafe(observation.around(call)).catch_unwind();
            match select(pin!(call), pin!(self.reached(Stage::Closed))).await {
                Either::Left((ended, _)) => Some(ended),
                Either::Right(_) => None,
            }
        };
        let another_ended = observation.let_go();
        let (key, attempt) = observation.last().unzip();
        about.key = key;
        let Some(ended) = ended else {
            // Waits until the key is free, so that the next worker can claim it.
            let _ = timeout(AFTERMATH, observation.settled()).await;
            return None;
        };
        Some(match ended {
            Ok(decision) => self.next(&decision, about, another_ended),
            Err(_) => {
                about.error = Some(PANICKED.to_owned());
                let attempt = attempt.flatten().unwrap_or(1);
                let tries = Tries { number: tries.number.max(attempt), ..tries };
                let (disposition, cause) = self.panicked(about, tries);
                Next::Settle(disposition, cause)
            }
        })
    }
}

impl<M, H, E> Works<'_, M, H, E> {
    /// What to do after a handler that ended with this decision. If `another_ended`, another handler with one
    /// of the keys of this handler ended in the meantime. Then a key that this handler found in flight may be
    /// free now.
    fn next(&self, decision: &Decision, about: &About, another_ended: bool) -> Next {
        let &Decision { disposition, outcome, cause, attempt, .. } = decision;
        match (cause, &about.key) {
            (Cause::Refused(ErrorKind::InFlight), Some(key)) if another_ended || self.held.holds(key) => {
                return Next::Behind(key.clone());
            }
            (Cause::Store, _) if self.consumer.settings.holds => return Next::Hold(cause),
            // These results do not show that the store answers, so the gate stays as it is.
            (Cause::Unclaimed | Cause::Refused(ErrorKind::Configuration) | Cause::Store, _) => {}
            (Cause::Done, _) if outcome.is_none_or(|outcome| outcome == Outcome::Unprotected) => {}
            _ => self.gate.open(),
        }
        report::settled(about, cause, attempt, disposition);
        if outcome.is_some_and(|outcome| outcome.is_replayed()) && disposition == Disposition::Acknowledge {
            self.consumer.progress.count(|summary| summary.replayed += 1);
        }
        Next::Settle(disposition, cause)
    }

    fn panicked(&self, about: &About, tries: Tries) -> (Disposition, Cause) {
        let disposition = tries.proposed(Reason::Panicked);
        self.consumer.progress.count(|summary| summary.panicked += 1);
        report::panicked(about, tries.number, disposition);
        report::settled(about, Cause::Panicked, tries.number, disposition);
        (disposition, Cause::Panicked)
    }

    /// The value of `wait`, or `None` if the consumer's shutdown began first.
    pub(super) async fn unless_closing<W: Future>(&self, wait: W) -> Option<W::Output> {
        match select(pin!(self.reached(Stage::Closing)), pin!(wait)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    async fn reached(&self, stage: Stage) {
        // An error would mean that the consumer is gone, and then this work would be gone, too.
        let _ = self.stage.clone().wait_for(|now| *now >= stage).await;
    }
}

/// Counts a message as waiting until this value is dropped.
struct Idle<'w>(&'w AtomicUsize);

impl<'w> Idle<'w> {
    fn new(idle: &'w AtomicUsize) -> Self {
        idle.fetch_add(1, Ordering::Relaxed);
        Self(idle)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
