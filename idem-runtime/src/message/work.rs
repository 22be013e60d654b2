//! One message, from its delivery to what the broker is told of it.
//!
//! Owns the rule that the broker is told once, and not before all is over. It takes nothing from the
//! stream.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::consumer::{Choose, Settings};
use super::lanes::Place;
use super::{AT_ONCE, Delivery, Disposition, Reason, Summary, settle_by};
use crate::context::{Observation, Outcome};

/// How long it is waited for what a dropped call left to be finished.
const AFTERMATH: Duration = Duration::from_secs(5);

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
pub(super) struct Works<'w, H, C> {
    pub(super) settings: &'w Settings,
    pub(super) handler: &'w H,
    pub(super) choose: &'w C,
    /// As many as handlers may run.
    pub(super) permits: Semaphore,
    pub(super) stage: watch::Receiver<Stage>,
}

/// A message that is done with.
pub(super) struct Done {
    pub(super) place: Option<Place>,
    pub(super) summary: Summary,
}

/// What the broker is to be told.
enum Verdict {
    Settled(Disposition),
    Unhandled,
}

impl<H, C> Works<'_, H, C> {
    /// Does one message, in its place where it is in an order.
    pub(super) async fn one<M, F, T, E>(&self, message: M, mut place: Option<Place>) -> Done
    where
        M: Delivery,
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let mut summary = Summary { taken: 1, ..Summary::default() };
        let failed = AtomicU64::new(0);
        let verdict = {
            // On the heap, as the caller's handler is in it.
            let deciding = Box::pin(self.decide(&message, place.as_mut(), &mut summary));
            self.extended(&message, &failed, deciding).await
        };
        summary.broker_errors += failed.into_inner();
        self.tell(message, verdict, &mut summary).await;
        Done { place, summary }
    }

    /// Runs the handler in its turn, again in its place if it must be, and says what is to be told.
    async fn decide<M, F, T, E>(
        &self,
        message: &M,
        mut place: Option<&mut Place>,
        summary: &mut Summary,
    ) -> Verdict
    where
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        if let Some(place) = &mut place {
            // Not cut short at the shutdown: what is given back must not overtake what still runs.
            place.turn().await;
        }
        loop {
            let Some(permit) = self.permit().await else { return Verdict::Unhandled };
            let Some(disposition) = self.handle(message, summary).await else { return Verdict::Unhandled };
            drop(permit);
            match disposition {
                Disposition::Retry { after } if place.is_some() => {
                    summary.retried += 1;
                    if !self.pause(after).await {
                        return Verdict::Unhandled;
                    }
                }
                disposition => return Verdict::Settled(disposition),
            }
        }
    }

    /// Runs the handler; `None` if it was dropped because its time was over.
    async fn handle<M, F, T, E>(&self, message: &M, summary: &mut Summary) -> Option<Disposition>
    where
        H: Fn(&M) -> F,
        F: Future<Output = Result<T, E>>,
        C: Choose<E>,
    {
        let observation = Arc::new(Observation::with_horizon(self.settings.horizon));
        let ended = {
            let call = async { (self.handler)(message).await };
            let choose = |error: &E, attempt, proposed| self.choose.choose(error, attempt, proposed);
            let call = AssertUnwindSafe(settle_by(&observation, call, choose)).catch_unwind();
            match select(pin!(call), pin!(self.reached(Stage::Closed))).await {
                Either::Left((ended, _)) => Some(ended),
                Either::Right(_) => None,
            }
        };
        summary.forgetful.extend(observation.take_forgetful());
        let Some(ended) = ended else {
            // So that who is given the message next finds its key free.
            let _ = timeout(AFTERMATH, observation.settled()).await;
            return None;
        };
        let Ok((settled, outcome)) = ended else {
            summary.panicked += 1;
            tracing::error!(target: "idem", event = "message_panicked", "a message's handler panicked; retried");
            return Some(AT_ONCE);
        };
        let replayed = outcome.as_ref().is_some_and(Outcome::is_replayed);
        summary.replayed += u64::from(replayed && settled.disposition == Disposition::Acknowledge);
        Some(settled.disposition)
    }

    /// Leave to run a handler; `None` when none is begun any more.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        match select(pin!(self.reached(Stage::Closing)), pin!(self.permits.acquire())).await {
            Either::Left(_) => None,
            Either::Right((permit, _)) => permit.ok(),
        }
    }

    /// Whether the pause was over before the consumer's end began.
    async fn pause(&self, pause: Duration) -> bool {
        match select(pin!(self.reached(Stage::Closing)), pin!(sleep(pause))).await {
            Either::Left(_) => false,
            Either::Right(_) => true,
        }
    }

    async fn reached(&self, stage: Stage) {
        // An error is a consumer that is gone, and this with it.
        let _ = self.stage.clone().wait_for(|now| *now >= stage).await;
    }

    /// Keeps the message from being delivered again while `work` goes on.
    async fn extended<M, F>(&self, message: &M, failed: &AtomicU64, work: Pin<Box<F>>) -> F::Output
    where
        M: Delivery,
        F: Future,
    {
        let Some(every) = self.settings.extend_every else { return work.await };
        let begin = Instant::now();
        let extending = async {
            for round in 1_u32.. {
                sleep_until(begin + every.saturating_mul(round)).await;
                if let Err(error) = self.answered(message.extend()).await {
                    failed.fetch_add(1, Ordering::Relaxed);
                    broker_failed("it could not be told that a message is in work", &error);
                }
            }
        };
        match select(work, pin!(extending)).await {
            Either::Left((output, _)) => output,
            Either::Right(((), work)) => work.await,
        }
    }

    /// Tells the broker.
    async fn tell<M: Delivery>(&self, message: M, verdict: Verdict, summary: &mut Summary) {
        let (counter, told) = match verdict {
            Verdict::Unhandled => (&mut summary.given_back, self.answered(message.give_back()).await),
            Verdict::Settled(Disposition::Acknowledge) => {
                (&mut summary.acknowledged, self.answered(message.acknowledge()).await)
            }
            Verdict::Settled(Disposition::Retry { after }) => {
                (&mut summary.retried, self.answered(message.retry(after)).await)
            }
            Verdict::Settled(Disposition::Reject { reason }) => {
                rejected(reason);
                (&mut summary.rejected, self.answered(message.reject(reason)).await)
            }
        };
        match told {
            Ok(()) => *counter += 1,
            Err(error) => {
                summary.broker_errors += 1;
                broker_failed("it could not be told what became of a message", &error);
            }
        }
    }

    /// What the broker says, if it does so in time.
    async fn answered<E: Display>(&self, asked: impl Future<Output = Result<(), E>>) -> Result<(), String> {
        let patience = self.settings.broker_timeout;
        match timeout(patience, AssertUnwindSafe(asked).catch_unwind()).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("its client panicked".to_owned()),
            Err(_) => Err(format!("it did not answer within {patience:?}")),
        }
    }
}

fn broker_failed(what: &str, error: &str) {
    tracing::warn!(target: "idem", event = "broker_failed", error, "the broker failed: {what}");
}

fn rejected(reason: Reason) {
    tracing::warn!(target: "idem", event = "message_rejected", reason = reason.as_str(), "a message is set aside");
}
