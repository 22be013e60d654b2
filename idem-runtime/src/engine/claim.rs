//! How a call comes to run its body, or to what it gets instead.

use std::pin::Pin;
use std::sync::Arc;

use backon::BackoffBuilder;
use tokio::time::{Instant, sleep, timeout};

use super::attempt::{Attempt, unanswered};
use super::call::Prepared;
use super::report::Event;
use super::wait::{self, backoff};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::protocol::{Claim, ClaimAnswer, Grant, Owner, Replay};
use crate::store::Store;

/// What a call may do.
pub(super) enum Entry<S: Store> {
    /// Run the body under this claim.
    Run(Attempt<S>),
    /// Give this result.
    Replay(Replay),
    /// Run the body without a claim.
    Unprotected,
}

/// What the store answered to one claim.
pub(super) enum Asked<S: Store> {
    Granted(Attempt<S>),
    Refused(ClaimAnswer),
}

/// Claims the key, and waits for it where the policy says so.
pub(super) async fn enter<S: Store>(call: &Arc<Prepared<S>>) -> Result<Entry<S>, Error> {
    let asked = match ask(call).await {
        Ok(Asked::Refused(ClaimAnswer::Busy { retry_after } | ClaimAnswer::RetryAt { retry_after }))
            if !call.policy.wait.is_zero() =>
        {
            call.report(Event::Busy, 0);
            wait::turn(call, retry_after).await?
        }
        Ok(asked) => asked,
        Err(error) if call.policy.fail_open && may_fail_open(&error) => {
            call.report(Event::Unprotected(&error), 0);
            return Ok(Entry::Unprotected);
        }
        Err(error) => return Err(refused_by_store(call, error)),
    };
    conclude(call, asked)
}

/// Whether an error says that the store is down. A record that cannot be read says that the call
/// was made before, so its body must not run.
fn may_fail_open(error: &StoreError) -> bool {
    match error.kind() {
        StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown | StoreErrorKind::Configuration => true,
        StoreErrorKind::TooLarge | StoreErrorKind::CorruptRecord => false,
    }
}

pub(super) fn refused_by_store<S: Store>(call: &Prepared<S>, source: StoreError) -> Error {
    call.report(Event::StoreFailed(&source), 0);
    Error::Store { call: call.id(), source }
}

fn conclude<S: Store>(call: &Arc<Prepared<S>>, asked: Asked<S>) -> Result<Entry<S>, Error> {
    let answer = match asked {
        Asked::Granted(attempt) => {
            let grant = attempt.grant();
            let event = if grant.recovered { Event::Recovered } else { Event::Claimed };
            call.report(event, grant.attempt);
            return Ok(Entry::Run(attempt));
        }
        Asked::Refused(answer) => answer,
    };
    match answer {
        ClaimAnswer::Replay(replay) => Ok(Entry::Replay(replay)),
        refusal => Err(call.refusal(&refusal)),
    }
}

impl<S: Store> Prepared<S> {
    /// The error of a call that gets neither the key nor a result.
    pub(super) fn refusal(&self, answer: &ClaimAnswer) -> Error {
        let id = || self.id();
        match *answer {
            ClaimAnswer::Busy { retry_after } => {
                self.report(Event::Busy, 0);
                Error::InFlight { call: id(), retry_after }
            }
            ClaimAnswer::RetryAt { retry_after } => Error::NotDue { call: id(), retry_after },
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
            // Both are no refusals, and whoever asked has taken them before.
            ClaimAnswer::Granted(_) | ClaimAnswer::Replay(_) => {
                Error::configuration(self.key.scope().as_str(), "an answer was lost")
            }
        }
    }
}

/// Claims the key once. A lost answer is asked again by the same owner within the store's timeout.
pub(super) async fn ask<S: Store>(call: &Arc<Prepared<S>>) -> Result<Asked<S>, StoreError> {
    let asking = Asking { call: call.clone(), owner: Owner::random(), sent: Instant::now() };
    let patience = call.policy.store_timeout;
    let mut pauses = backoff().build();
    let mut doubt = Doubt { asking: asking.clone(), open: None };
    loop {
        let left = patience.saturating_sub(asking.sent.elapsed());
        let mut pending = PendingClaim::new(&asking);
        let answer = match timeout(left, pending.answer()).await {
            Ok(answer) => answer,
            // Not asked again: the first question goes on in the background, to give up what it
            // may still be granted.
            Err(_) => return Err(doubt.open.clone().unwrap_or_else(|| unanswered("the claim", patience))),
        };
        match answer {
            Ok(ClaimAnswer::Granted(grant)) => {
                doubt.open = None;
                let attempt = asking.attempt(grant);
                if let Some(confirmed) = confirm(attempt, asking.sent + patience).await? {
                    return Ok(Asked::Granted(confirmed));
                }
                // Somebody has it by now. Asking again tells how long.
            }
            Ok(answer) => {
                doubt.open = None;
                return Ok(Asked::Refused(answer));
            }
            Err(error) if error.is_outcome_unknown() => {
                let open = doubt.open.get_or_insert(error).clone();
                let left = patience.saturating_sub(asking.sent.elapsed());
                if left.is_zero() {
                    return Err(open);
                }
                sleep(pauses.next().unwrap_or(left).min(left)).await;
            }
            Err(error) => return Err(doubt.open.clone().unwrap_or(error)),
        }
    }
}

/// A grant that was long on its way is renewed before the body starts, unless somebody has it by
/// now.
async fn confirm<S: Store>(attempt: Attempt<S>, until: Instant) -> Result<Option<Attempt<S>>, StoreError> {
    let claimed = attempt.claimed();
    let left = claimed.lease.held_until().saturating_duration_since(Instant::now());
    if left > claimed.lease.length / 3 {
        return Ok(Some(attempt));
    }
    let mut pauses = backoff().build();
    while !claimed.clone().renew().await {
        let pause = pauses.next().unwrap_or(claimed.lease.length);
        if Instant::now() + pause >= until {
            return Err(StoreError::outcome_unknown(
                "it granted the claim late and did not answer when asked to renew it",
            ));
        }
        sleep(pause).await;
    }
    Ok(if claimed.lease.is_lost() { None } else { Some(attempt) })
}

type Answering = Pin<Box<dyn Future<Output = Result<ClaimAnswer, StoreError>> + Send>>;

/// Who asks for what, and since when.
struct Asking<S: Store> {
    call: Arc<Prepared<S>>,
    owner: Owner,
    sent: Instant,
}

impl<S: Store> Clone for Asking<S> {
    fn clone(&self) -> Self {
        Self { call: self.call.clone(), ..*self }
    }
}

impl<S: Store> Asking<S> {
    fn claim(&self) -> Answering {
        let policy = &self.call.policy;
        let request = Claim {
            owner: self.owner,
            fingerprint: self.call.fingerprint,
            lease: self.call.lease(),
            ttl: policy.ttl,
            on_crash: policy.on_crash,
            max_attempts: policy.max_attempts,
        };
        let call = self.call.clone();
        Box::pin(async move { call.store.claim(&call.key, &request).await })
    }

    fn attempt(&self, grant: Grant) -> Attempt<S> {
        Attempt::new(&self.call, self.owner, grant, self.sent)
    }

    /// Finds out what was granted to a caller that went away, and gives it back. With `answering`
    /// only that question was asked; without, an earlier answer left it open.
    async fn give_back(self, answering: Option<Answering>) {
        let policy = &self.call.policy;
        let doubtful = answering.is_none();
        let mut answering = answering.unwrap_or_else(|| self.claim());
        let mut pauses = backoff().build();
        loop {
            match timeout(policy.store_timeout, answering).await {
                // An attempt that is not used is given up when it is dropped.
                Ok(Ok(ClaimAnswer::Granted(grant))) => return drop(self.attempt(grant)),
                Ok(Ok(_)) => return,
                Ok(Err(error)) if !doubtful && !error.is_outcome_unknown() => return,
                Ok(Err(_)) | Err(_) if self.sent.elapsed() > policy.lease => return,
                Ok(Err(_)) | Err(_) => sleep(pauses.next().unwrap_or(policy.store_timeout)).await,
            }
            answering = self.claim();
        }
    }
}

/// An answer that left open whether the claim was granted. Unless a later one settles it, it is
/// settled behind the caller.
struct Doubt<S: Store> {
    asking: Asking<S>,
    open: Option<StoreError>,
}

impl<S: Store> Drop for Doubt<S> {
    fn drop(&mut self) {
        if self.open.is_some() {
            let give_back = self.asking.clone().give_back(None);
            self.asking.call.finish_behind(give_back);
        }
    }
}

/// A claim whose answer is awaited. If the caller goes away first, the answer is still awaited, and
/// a grant that nobody wants is given back.
struct PendingClaim<S: Store> {
    asking: Asking<S>,
    answering: Option<Answering>,
}

impl<S: Store> PendingClaim<S> {
    fn new(asking: &Asking<S>) -> Self {
        Self { asking: asking.clone(), answering: Some(asking.claim()) }
    }

    async fn answer(&mut self) -> Result<ClaimAnswer, StoreError> {
        let Some(answering) = &mut self.answering else {
            return Err(StoreError::outcome_unknown("it was asked already"));
        };
        let answer = answering.as_mut().await;
        self.answering = None;
        answer
    }
}

impl<S: Store> Drop for PendingClaim<S> {
    fn drop(&mut self) {
        if let Some(answering) = self.answering.take() {
            let give_back = self.asking.clone().give_back(Some(answering));
            self.asking.call.finish_behind(give_back);
        }
    }
}
