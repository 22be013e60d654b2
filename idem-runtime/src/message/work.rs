//! One message, from its delivery to its settlement with the broker.
//!
//! Owns the rule that the broker hears once of each message, and not before all is over. It takes nothing from
//! the stream.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use idem_core::RecordKey;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::gate::Gate;
use super::lanes::Place;
use super::report::{self, About};
use super::settings::Settings;
use super::{Cause, Choose, Delivery, Disposition, Judged, OnError, Progress, Reason, Tries, settle_by};
use crate::engine::{HeldKeys, Observation, Outcome};

/// How long to wait for the background work of a dropped call.
pub(super) const AFTERMATH: Duration = Duration::from_secs(5);

/// How far a consumer is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Messages are taken and handled.
    Open,
    /// No handler is begun any more.
    Closing,
    /// None is left running.
    Closed,
}

/// What the works of a consumer share.
pub(super) struct Works<'w, H, C, O> {
    pub(super) settings: &'w Settings,
    pub(super) handler: &'w H,
    pub(super) choose: &'w C,
    pub(super) on_error: &'w O,
    /// As many as handlers may run.
    pub(super) permits: Semaphore,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) gate: Gate,
    pub(super) held: Arc<HeldKeys>,
    /// How many messages wait for others, or for their pause to be over.
    pub(super) idle: AtomicUsize,
    pub(super) progress: &'w Progress,
}

/// Where a message is in an order.
pub(super) enum Order {
    None,
    Place(Place),
    /// [`Delivery::group`] panicked.
    Unknown,
}

/// A message that is done with.
pub(super) struct Done {
    pub(super) place: Option<Place>,
}

/// How a message is settled.
enum Verdict {
    Settled(Disposition, Cause),
    Unhandled,
}

/// What comes after a handler.
enum Next {
    Settle(Disposition, Cause),
    /// Again, once the handler that holds this key has ended.
    Behind(RecordKey),
    /// Again, once the store can be used.
    Hold(Cause),
}

impl<H, C, O> Works<'_, H, C, O> {
    /// Does one message, in its place where it is in an order.
    pub(super) async fn one<M, F, T, E>(&self, message: M, order: Order) -> Done
    where
        M: Delivery,
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
        O: OnError<M, E>,
    {
        let mut about = About { id: guarded(|| message.id()), key: None };
        let most = self.settings.max_tries;
        let mut tries = Tries { number: guarded(|| message.deliveries()).unwrap_or(1).max(1), most };
        let (verdict, place) = match order {
            Order::Unknown => (self.panicked(&about, tries), None),
            Order::None => {
                // On the heap, as the caller's handler is in it.
                let deciding = Box::pin(self.decide(&message, None, &mut tries, &mut about));
                (self.extended(&message, deciding).await, None)
            }
            Order::Place(mut place) => {
                let deciding = Box::pin(self.decide(&message, Some(&mut place), &mut tries, &mut about));
                (self.extended(&message, deciding).await, Some(place))
            }
        };
        self.tell(message, verdict, &about).await;
        Done { place }
    }

    /// Runs the handler in its turn, again in its place if it must be, and decides how to settle.
    async fn decide<M, F, T, E>(
        &self,
        message: &M,
        mut place: Option<&mut Place>,
        tries: &mut Tries,
        about: &mut About,
    ) -> Verdict
    where
        M: Delivery,
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
        O: OnError<M, E>,
    {
        if let Some(place) = &mut place {
            let _idle = Idle::new(&self.idle);
            // Not cut short at the shutdown: what is given back must not overtake what still runs.
            place.turn().await;
        }
        let extended = self.settings.extend_every.is_some();
        let mut pauses = Gate::pauses();
        let mut held_up = None;
        loop {
            let Some(permit) = self.permit().await else { return Verdict::Unhandled };
            let Some(next) = self.handle(message, *tries, about).await else { return Verdict::Unhandled };
            drop(permit);
            let goes_on = match next {
                Next::Behind(key) => {
                    let _idle = Idle::new(&self.idle);
                    self.unless_closing(self.held.freed(&key)).await
                }
                Next::Hold(cause) => {
                    self.progress.count(|summary| summary.held += 1);
                    report::held(about, cause, self.gate.close(), extended);
                    self.unless_closing(self.gate.wait(&mut pauses)).await
                }
                Next::Settle(Disposition::Retry { after }, cause) if place.is_some() => {
                    self.progress.count(|summary| summary.retried += 1);
                    report::count("retry", cause.as_str());
                    held_up.get_or_insert_with(|| report::group_held_up(about, extended));
                    pauses = Gate::pauses();
                    tries.number = tries.number.saturating_add(1);
                    let _idle = Idle::new(&self.idle);
                    self.unless_closing(sleep(after)).await
                }
                Next::Settle(disposition, cause) => return Verdict::Settled(disposition, cause),
            };
            if !goes_on {
                return Verdict::Unhandled;
            }
        }
    }

    /// Runs the handler; `None` if it was dropped because its time was over.
    async fn handle<M, F, T, E>(&self, message: &M, tries: Tries, about: &mut About) -> Option<Next>
    where
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
        O: OnError<M, E>,
    {
        let observation = Arc::new(Observation::of_handler(&self.held, self.settings.horizon));
        let ended = {
            let call = async { (self.handler)(message).await };
            let choose = |error: &E, attempt, proposed| self.choose.choose(error, attempt, proposed);
            let call = async {
                let judged = settle_by(&observation, call, tries, choose).await;
                if let Err(error) = &judged.value {
                    self.on_error.failed(message, error, judged.disposition);
                }
                judged.without_value()
            };
            let call = AssertUnwindSafe(call).catch_unwind();
            match select(pin!(call), pin!(self.reached(Stage::Closed))).await {
                Either::Left((ended, _)) => Some(ended),
                Either::Right(_) => None,
            }
        };
        observation.let_go();
        about.key = observation.key();
        self.forgetful(&observation);
        let Some(ended) = ended else {
            // So that who is given the message next finds its key free.
            let _ = timeout(AFTERMATH, observation.settled()).await;
            return None;
        };
        Some(match ended {
            Ok(judged) => self.next(&judged, about),
            Err(_) => {
                let attempt = observation.attempt().unwrap_or(1);
                let tries = Tries { number: tries.number.max(attempt), ..tries };
                match self.panicked(about, tries) {
                    Verdict::Settled(disposition, cause) => Next::Settle(disposition, cause),
                    Verdict::Unhandled => return None,
                }
            }
        })
    }

    /// What comes after a handler that ended like this.
    fn next(&self, judged: &Judged<()>, about: &About) -> Next {
        let &Judged { disposition, outcome, cause, attempt, .. } = judged;
        match (cause, &about.key) {
            (Cause::InFlight, Some(key)) if self.held.holds(key) => return Next::Behind(key.clone()),
            (Cause::Store | Cause::Misconfigured, _) => return Next::Hold(cause),
            // Without an idempotent call nobody has asked the store.
            (Cause::Unclaimed, _) => {}
            (Cause::Done, _) if outcome.is_none_or(|outcome| outcome == Outcome::Unprotected) => {}
            _ if self.gate.open() => report::released(),
            _ => {}
        }
        report::settled(about, cause, attempt, disposition);
        if outcome.is_some_and(|outcome| outcome.is_replayed()) && disposition == Disposition::Acknowledge {
            self.progress.count(|summary| summary.replayed += 1);
        }
        Next::Settle(disposition, cause)
    }

    fn panicked(&self, about: &About, tries: Tries) -> Verdict {
        let disposition = tries.proposed(Reason::Panicked);
        self.progress.count(|summary| summary.panicked += 1);
        report::panicked(about, tries.number, disposition);
        report::settled(about, Cause::Panicked, tries.number, disposition);
        Verdict::Settled(disposition, Cause::Panicked)
    }

    fn forgetful(&self, observation: &Observation) {
        for (operation, ttl) in observation.take_forgetful() {
            if self.progress.count(|summary| summary.forgetful.insert(operation.clone(), ttl).is_none()) {
                tracing::warn!(
                    target: "idem",
                    event = "ttl_below_horizon",
                    operation,
                    ttl_s = ttl.as_secs(),
                    "results are kept for a shorter time than the broker may deliver a message again"
                );
            }
        }
    }

    /// Leave to run a handler; `None` when none is begun any more.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        match select(pin!(self.reached(Stage::Closing)), pin!(self.permits.acquire())).await {
            Either::Left(_) => None,
            Either::Right((permit, _)) => permit.ok(),
        }
    }

    /// Whether `wait` was over before the consumer's end began.
    async fn unless_closing(&self, wait: impl Future<Output = ()>) -> bool {
        match select(pin!(self.reached(Stage::Closing)), pin!(wait)).await {
            Either::Left(_) => false,
            Either::Right(_) => true,
        }
    }

    async fn reached(&self, stage: Stage) {
        // An error is a consumer that is gone, and this with it.
        let _ = self.stage.clone().wait_for(|now| *now >= stage).await;
    }

    /// Keeps the message from being delivered again while `work` goes on.
    async fn extended<M, F>(&self, message: &M, work: Pin<Box<F>>) -> F::Output
    where
        M: Delivery,
        F: Future,
    {
        let Some(every) = self.settings.extend_every else { return work.await };
        let extending = async {
            let mut rounds = interval_at(Instant::now() + every, every);
            // A broker that stalled hears no burst of what it missed.
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                rounds.tick().await;
                if let Err(error) = self.answered(message.extend()).await {
                    self.progress.count(|summary| summary.broker_errors += 1);
                    let about = About { id: guarded(|| message.id()), key: None };
                    report::broker_failed(&about, "it did not extend a message that is in work", &error);
                }
            }
        };
        match select(work, pin!(extending)).await {
            Either::Left((output, _)) => output,
            Either::Right(((), work)) => work.await,
        }
    }

    /// Settles the message with the broker.
    async fn tell<M: Delivery>(&self, message: M, verdict: Verdict, about: &About) {
        let (word, cause, told) = match verdict {
            Verdict::Unhandled => ("give_back", Cause::Done, self.answered(message.give_back()).await),
            Verdict::Settled(Disposition::Acknowledge, cause) => {
                ("acknowledge", cause, self.answered(message.acknowledge()).await)
            }
            Verdict::Settled(Disposition::Retry { after }, cause) => {
                ("retry", cause, self.answered(message.retry(after)).await)
            }
            Verdict::Settled(Disposition::Reject { reason }, cause) => {
                ("reject", cause, self.answered(message.reject(reason)).await)
            }
        };
        if let Err(error) = told {
            self.progress.count(|summary| summary.broker_errors += 1);
            report::broker_failed(about, "a message could not be settled", &error);
            return;
        }
        report::count(word, cause.as_str());
        self.progress.count(|summary| {
            *match word {
                "acknowledge" => &mut summary.acknowledged,
                "retry" => &mut summary.retried,
                "reject" => &mut summary.rejected,
                _ => &mut summary.given_back,
            } += 1;
        });
    }

    /// The broker's answer, if it comes in time.
    async fn answered<E: Display>(&self, asked: impl Future<Output = Result<(), E>>) -> Result<(), String> {
        let patience = self.settings.broker_timeout;
        match timeout(patience, AssertUnwindSafe(asked).catch_unwind()).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("its client panicked".to_owned()),
            Err(_) => Err(format!("it did not answer within {patience:?}")),
        }
    }
}

/// What the glue says of a message, or nothing where it panics.
fn guarded<T>(said: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(said)).unwrap_or_default()
}

/// Counts a message that waits, until it is dropped.
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
