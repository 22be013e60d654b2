//! The second phase: how a call gets the right to run its body, or a result or an error instead.
//!
//! Owns the claim with its retries, and what its answer means for the call. [`wait`] and [`waiters`] wait for the call in
//! flight, [`give_back`] releases what a claim without an answer may have been granted, and [`claimed`] is what a granted
//! claim consists of.

pub(super) mod claimed;
mod give_back;
mod wait;
pub(super) mod waiters;

use std::pin::Pin;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use self::give_back::UnansweredClaim;
use crate::engine::lease::Sent;
use crate::engine::prepare::call::Call;
use crate::engine::record::attempt::Attempt;
use crate::engine::report::{Event, Stopwatch};
use crate::engine::retry::{backoff, unanswered, within};
use crate::error::{Error, StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{ClaimAnswer, Owner, Replay};

/// What a call may do.
pub(crate) enum Entry<S: Store> {
    /// Run the body under this claim.
    Run(Attempt<S>),
    /// Return this result.
    Replay(Replay),
    /// Run the body without a claim.
    Unprotected,
}

/// The outcome of one claim.
enum Claiming<S: Store> {
    Granted(Attempt<S>),
    /// Any other answer: a refusal or a replay.
    NotGranted(ClaimAnswer),
}

/// Claims the key, and waits for it if the policy says so.
pub(crate) async fn enter<S: Store>(call: &Arc<Call<S>>) -> Result<Entry<S>, Error> {
    let entry = claimed_or_waited(call).instrument(call.span.clone()).await;
    entry.map_err(|error| call.refuse(error))
}

async fn claimed_or_waited<S: Store>(call: &Arc<Call<S>>) -> Result<Entry<S>, Error> {
    let claiming = match claim(call).await {
        Ok(Claiming::NotGranted(answer))
            if !call.policy.wait.is_zero()
                && !call.is_reentrant()
                && let Some(refusal) = wait::worth_waiting(&answer) =>
        {
            call.report(Event::Busy, 0);
            Box::pin(wait::wait(call, refusal)).await?
        }
        Ok(claiming) => claiming,
        Err(error) if call.policy.fail_open && may_fail_open(&error) => {
            call.report(Event::Unprotected(&error), 0);
            return Ok(Entry::Unprotected);
        }
        Err(error) => return Err(call.store_failed(error)),
    };
    match claiming {
        Claiming::Granted(attempt) => {
            let grant = attempt.grant();
            let event = if grant.recovered { Event::Recovered } else { Event::Claimed };
            call.report(event, grant.attempt);
            call.granted(grant.attempt);
            Ok(Entry::Run(attempt))
        }
        Claiming::NotGranted(ClaimAnswer::Replay(replay)) => Ok(Entry::Replay(replay)),
        Claiming::NotGranted(refusal) => Err(call.refusal(&refusal)),
    }
}

/// Whether an error means that the store is down. An unreadable record means that the call was made before, so its body
/// must not run.
fn may_fail_open(error: &StoreError) -> bool {
    match error.kind() {
        StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown | StoreErrorKind::Configuration => true,
        // Any other kind, also one of a later version: a body that may have run before does not run unprotected.
        _ => false,
    }
}

impl<S: Store> Call<S> {
    /// The error for a call whose claim the store did not answer.
    pub(crate) fn store_failed(&self, source: StoreError) -> Error {
        self.report(Event::StoreFailed(&source), 0);
        Error::Store { call: self.id(), source }
    }

    /// The error for a call that gets neither the key nor a result.
    pub(crate) fn refusal(&self, answer: &ClaimAnswer) -> Error {
        let id = || self.id();
        match *answer {
            ClaimAnswer::Busy { retry_after } => {
                self.report(Event::Busy, 0);
                Error::InFlight { call: id(), retry_after, reentrant: self.is_reentrant() }
            }
            ClaimAnswer::RetryAt { retry_after } => {
                self.report(Event::NotDue, 0);
                Error::NotDue { call: id(), retry_after }
            }
            ClaimAnswer::Mismatch => {
                self.report(Event::Mismatch, 0);
                Error::Mismatch { call: id() }
            }
            ClaimAnswer::InDoubt => {
                self.report(Event::InDoubt, 0);
                Error::InDoubt { call: id() }
            }
            ClaimAnswer::Exhausted { attempts } => {
                self.report(Event::Exhausted, attempts);
                Error::Exhausted { call: id(), attempts }
            }
            // Grants and replays are handled before, so this is an answer that a later version added.
            _ => Error::configuration(
                self.key.scope().as_str(),
                "the store gave an answer that this version of idem does not know; use one version of both",
            ),
        }
    }
}

/// Claims the key for a new owner. If the answer is lost, the same owner sends the claim again, within the store timeout.
async fn claim<S: Store>(call: &Arc<Call<S>>) -> Result<Claiming<S>, StoreError> {
    let (owner, sent) = (Owner::random(), Sent::now(&call.process, call.lease_from_now()));
    let patience = call.policy.store_timeout;
    let until = sent.runtime + patience;
    loop {
        let request = OwnersClaim { call: call.clone(), owner, sent };
        let mut open = UnansweredClaim { call, owner, answering: None };
        let answering = open.answering.insert(Box::pin(request.answered()));
        let remaining = until.saturating_duration_since(Instant::now());
        // After the timeout the claim is not dropped. It continues in the background, to release what the store may still
        // grant.
        let answer = within(remaining, answering).await.map_err(|_| unanswered("the claim", patience))?;
        open.answering = None;
        let attempt = match answer {
            Ok(Claiming::Granted(attempt)) if attempt.claimed().lease.is_late() => attempt,
            Ok(claiming) => return Ok(claiming),
            Err(NoAnswer { error, may_be_granted }) => {
                if may_be_granted {
                    open.give_back(None);
                }
                return Err(error);
            }
        };
        // Only the caller confirms a late grant. In the background the attempt is dropped, which gives it back.
        let remaining = until.saturating_duration_since(Instant::now());
        let confirmed = Box::pin(within(remaining, confirm(attempt, until))).await;
        if let Some(attempt) = confirmed.map_err(|_| unanswered("the claim", patience))?? {
            return Ok(Claiming::Granted(attempt));
        }
        // Another call has the claim by now. The next answer says for how long.
    }
}

/// Renews a grant whose answer arrived late, before the body starts. `None` if another call has the claim by then.
async fn confirm<S: Store>(attempt: Attempt<S>, until: Instant) -> Result<Option<Attempt<S>>, StoreError> {
    attempt.claimed().renew_before_start(until).await?;
    Ok(if attempt.claimed().lease.is_lost() { None } else { Some(attempt) })
}

/// Why a claim has no answer.
struct NoAnswer {
    error: StoreError,
    may_be_granted: bool,
}

type Answering<S> = Pin<Box<dyn Future<Output = Result<Claiming<S>, NoAnswer>> + Send>>;

/// The claim of one owner: its call, and when it was first sent.
struct OwnersClaim<S: Store> {
    call: Arc<Call<S>>,
    owner: Owner,
    sent: Sent,
}

impl<S: Store> OwnersClaim<S> {
    /// Sends the claim until there is an answer, for at most the store timeout.
    async fn answered(self) -> Result<Claiming<S>, NoAnswer> {
        // Boxed, because it is rare and every call has room for this future.
        let mut retries: Option<Box<Retries>> = None;
        loop {
            let request = self.call.claim(self.owner, self.call.lease_from_now());
            let time = Stopwatch::start();
            let answer = self.call.store.claim(&self.call.key, &request).await;
            time.store_answered::<S, _, _>(&self.call.key, "claim", &answer);
            match answer {
                Ok(ClaimAnswer::Granted(grant)) => {
                    return Ok(Claiming::Granted(Attempt::new(&self.call, self.owner, grant, self.sent)));
                }
                // The doubt may be about this claim: granted, its answer lost, its lease over. Then no body began, and it is
                // given back.
                Ok(ClaimAnswer::InDoubt) if let Some(retries) = retries.take() => {
                    return Err(NoAnswer { error: retries.first_error, may_be_granted: true });
                }
                Ok(answer) => return Ok(Claiming::NotGranted(answer)),
                Err(error) if error.is_outcome_unknown() => {
                    let retries = retries.get_or_insert_with(|| Retries::after(error));
                    let remaining = self.until().saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        return Err(NoAnswer { error: retries.first_error.clone(), may_be_granted: true });
                    }
                    Box::pin(sleep(retries.pauses.next().unwrap_or(remaining).min(remaining))).await;
                }
                Err(error) => {
                    let may_be_granted = retries.is_some();
                    let error = retries.map_or(error, |retries| retries.first_error);
                    return Err(NoAnswer { error, may_be_granted });
                }
            }
        }
    }

    fn until(&self) -> Instant {
        self.sent.runtime + self.call.policy.store_timeout
    }
}

/// A claim that is sent again, because an earlier request may have been granted.
struct Retries {
    first_error: StoreError,
    pauses: ExponentialBackoff,
}

impl Retries {
    fn after(first_error: StoreError) -> Box<Self> {
        Box::new(Self { first_error, pauses: backoff().build() })
    }
}
