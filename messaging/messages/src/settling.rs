//! Requests to the broker about a message, while the message is in work and when it is settled.
//!
//! Owns the timeout of these requests, and the rules for repeating them after an error of the broker. This
//! module decides nothing about a message.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};

use super::gate::Gate;
use super::report::{self, About, guarded};
use super::work::{Verdict, Works};
use super::{Cause, DeadLetter, Delivery, Disposition};

impl<M: Delivery, H, E> Works<'_, M, H, E> {
    /// The times at which a message that arrives now is extended. `None` if the consumer extends no messages.
    pub(super) fn rounds(&self) -> Option<Interval> {
        let every = self.consumer.settings.extend_every?.max(Duration::from_millis(1));
        let mut rounds = interval_at(Instant::now() + every, every);
        // After a stall, the broker gets no burst of the missed extensions.
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(rounds)
    }

    /// Extends the message while `work` runs, so that the broker does not deliver it again.
    pub(super) async fn extended<F: Future + Unpin>(
        &self,
        message: &M,
        rounds: &mut Option<Interval>,
        work: F,
    ) -> F::Output {
        let Some(rounds) = rounds else { return work.await };
        let extending = async {
            loop {
                rounds.tick().await;
                if let Err(error) = self.answered(|| message.extend()).await {
                    self.consumer.progress.count(|summary| summary.broker_errors += 1);
                    let about = About::message(message);
                    report::broker_failed(&about, "it did not extend a message that is in work", &error);
                }
            }
        };
        match select(work, pin!(extending)).await {
            Either::Left((output, _)) => output,
            Either::Right(((), work)) => work.await,
        }
    }

    /// Settles the message with the broker. Repeats a retry or a rejection that fails, while the broker still
    /// counts the message as delivered to this worker. If the consumer shuts down meanwhile, gives the message
    /// back. If an acknowledgement is lost, the broker delivers the message again, and the
    /// call is replayed. If a message cannot be given back, the broker delivers it again by its own rule.
    pub(super) async fn settle(
        &self,
        message: &M,
        verdict: Verdict,
        tries: u32,
        about: &About,
        mut rounds: Option<Interval>,
    ) {
        let mut pauses = Gate::pauses();
        loop {
            let settling = pin!(self.settle_once(message, verdict, tries, about));
            // An extension must not follow a retry, because it would lengthen or undo the retry's pause.
            let is_settled = match verdict {
                Some((Disposition::Acknowledge | Disposition::Reject { .. }, _)) => {
                    self.extended(message, &mut rounds, settling).await
                }
                _ => settling.await,
            };
            let is_repeatable =
                verdict.is_some_and(|(disposition, _)| disposition != Disposition::Acknowledge);
            if is_settled || !is_repeatable || guarded(|| Some(message.is_held())) != Some(true) {
                return;
            }
            let pause = pin!(sleep(pauses.next().unwrap_or_default()));
            if self.unless_closing(self.extended(message, &mut rounds, pause)).await.is_none() {
                self.settle_once(message, None, tries, about).await;
                return;
            }
        }
    }

    /// Settles the message with the broker once. Returns whether the broker accepted this.
    async fn settle_once(&self, message: &M, verdict: Verdict, tries: u32, about: &About) -> bool {
        let (disposition, cause) = verdict.unzip();
        let answer = match disposition {
            None => self.answered(|| message.give_back()).await,
            Some(Disposition::Acknowledge) => self.answered(|| message.acknowledge()).await,
            Some(Disposition::Retry { after }) => self.answered(|| message.retry(after)).await,
            Some(Disposition::Reject { reason }) => {
                let letter = DeadLetter::of(reason, tries, about);
                self.answered(|| message.reject(&letter)).await
            }
        };
        if let Err(error) = answer {
            self.consumer.progress.count(|summary| summary.broker_errors += 1);
            report::broker_failed(about, "a message could not be settled", &error);
            return false;
        }
        let word = disposition.map_or("give_back", Disposition::as_str);
        report::count(about, word, cause.unwrap_or(Cause::Done).as_str());
        self.consumer.progress.count(|summary| {
            *match word {
                "acknowledge" => &mut summary.acknowledged,
                "retry" => &mut summary.retried,
                "reject" => &mut summary.rejected,
                _ => &mut summary.given_back,
            } += 1;
        });
        true
    }

    /// Makes a request to the broker by `ask`. Returns an error text if the request fails, the answer is
    /// late, or the client panics. `ask` runs inside the guarded future, because the client may also panic
    /// before it returns its own future.
    async fn answered<X: Display, F>(&self, ask: impl FnOnce() -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), X>>,
    {
        let patience = self.consumer.settings.broker_timeout;
        let request = AssertUnwindSafe(async { ask().await }).catch_unwind();
        match timeout(patience, request).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("its client panicked".to_owned()),
            Err(_) => Err(format!("it did not answer within {patience:?}")),
        }
    }
}
