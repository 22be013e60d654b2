//! How a call gets the right to run its body, or a result or an error instead.

mod wait;

use std::pin::Pin;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::time::{Instant, sleep, timeout};

use super::attempt::Attempt;
use super::background::Work;
use super::call::Prepared;
use super::claimed::Claimed;
use super::lease::Sent;
use super::patience::Patience;
use super::report::{Event, Stopwatch};
use super::retry::{backoff, unanswered, within};
use super::waiters::Waiters;
use crate::error::{Error, StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{Claim, ClaimAnswer, Fence, Owner, Record, Release, ReleaseCause, Replay, State};

/// What a call may do.
pub(super) enum Entry<S: Store> {
    /// Run the body under this claim.
    Run(Attempt<S>),
    /// Return this result.
    Replay(Replay),
    /// Run the body without a claim.
    Unprotected,
}

/// What the store answered to one claim.
pub(super) enum Asked<S: Store> {
    Granted(Attempt<S>),
    /// Any other answer: a refusal or a replay.
    NotGranted(ClaimAnswer),
}

/// Claims the key, and waits for it if the policy says so.
pub(super) async fn enter<S: Store>(call: &Arc<Prepared<S>>) -> Result<Entry<S>, Error> {
    let asked = match ask(call).await {
        Ok(Asked::NotGranted(answer))
            if !call.policy.wait.is_zero()
                && !call.is_reentrant()
                && let Some(busy) = wait::worth_waiting(&answer) =>
        {
            call.report(Event::Busy, 0);
            Box::pin(wait::turn(call, busy)).await?
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

/// Whether an error means that the store is down. An unreadable record means that the call was made before, so its body
/// must not run.
fn may_fail_open(error: &StoreError) -> bool {
    match error.kind() {
        StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown | StoreErrorKind::Configuration => true,
        // Any other kind, also one of a later version: a body that may have run before does not run unprotected.
        _ => false,
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
            call.granted(grant.attempt);
            return Ok(Entry::Run(attempt));
        }
        Asked::NotGranted(answer) => answer,
    };
    match answer {
        ClaimAnswer::Replay(replay) => Ok(Entry::Replay(replay)),
        refusal => Err(call.refusal(&refusal)),
    }
}

impl<S: Store> Prepared<S> {
    /// The error for a call that gets neither the key nor a result.
    pub(super) fn refusal(&self, answer: &ClaimAnswer) -> Error {
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

/// Claims the key once. If the answer is lost, the same owner sends the claim again, within the store timeout.
pub(super) async fn ask<S: Store>(call: &Arc<Prepared<S>>) -> Result<Asked<S>, StoreError> {
    let sent = Sent::now(&call.process, call.lease());
    let asking = Asking { call: call.clone(), owner: Owner::random(), sent };
    let mut claiming = Claiming { call, owner: asking.owner, answering: None };
    let answering = claiming.answering.insert(Box::pin(asking.answered()));
    let patience = call.policy.store_timeout;
    // After the timeout the claim is not dropped. It continues in the background, to release what the store may still
    // grant.
    let answered = within(patience, answering).await.map_err(|_| unanswered("the claim", patience))?;
    claiming.answering = None;
    answered.map_err(|Unanswered { error, open }| {
        if open {
            claiming.give_back(None);
        }
        error
    })
}

/// Renews a grant whose answer arrived late, before the body starts. `None` if another call has the claim by then.
async fn confirm<S: Store>(attempt: Attempt<S>, until: Instant) -> Result<Option<Attempt<S>>, StoreError> {
    renewed(attempt.claimed(), until).await?;
    Ok(if attempt.claimed().lease.is_lost() { None } else { Some(attempt) })
}

/// Renews a claim before its body or a step starts. The claim may be lost then.
pub(super) async fn renewed<S: Store>(claimed: &Arc<Claimed<S>>, until: Instant) -> Result<(), StoreError> {
    let mut pauses = backoff().build();
    while !claimed.clone().renew().await {
        let pause = pauses.next().unwrap_or(claimed.lease.length);
        if Instant::now() + pause >= until {
            return Err(StoreError::outcome_unknown(
                "it did not answer when asked to renew the claim before the body or a step starts",
            ));
        }
        sleep(pause).await;
    }
    // After a deadline a lease may be over when its answer comes.
    if !claimed.lease.is_lost() && claimed.lease.held_until() <= Instant::now() {
        return Err(StoreError::outcome_unknown("the lease was over before the body or a step could start"));
    }
    Ok(())
}

/// Why a claim has no answer.
struct Unanswered {
    error: StoreError,
    /// Whether the claim may have been granted nevertheless.
    open: bool,
}

type Answering<S> = Pin<Box<dyn Future<Output = Result<Asked<S>, Unanswered>> + Send>>;

/// One claim: its call, its owner, and when it was first sent.
struct Asking<S: Store> {
    call: Arc<Prepared<S>>,
    owner: Owner,
    sent: Sent,
}

impl<S: Store> Asking<S> {
    /// Sends the claim until there is an answer, for at most the store timeout.
    async fn answered(self) -> Result<Asked<S>, Unanswered> {
        // Boxed, because it is rare and every call has room for this future.
        let mut again: Option<Box<Again>> = None;
        loop {
            let request = self.request();
            let time = Stopwatch::start();
            let answer = self.call.store.claim(&self.call.key, &request).await;
            time.store_answered::<S, _, _>(&self.call.key, "claim", &answer);
            match answer {
                Ok(ClaimAnswer::Granted(grant)) => {
                    again = None;
                    let attempt = Attempt::new(&self.call, self.owner, grant, self.sent);
                    if !attempt.claimed().lease.is_late() {
                        return Ok(Asked::Granted(attempt));
                    }
                    match Box::pin(confirm(attempt, self.until())).await {
                        Ok(Some(attempt)) => return Ok(Asked::Granted(attempt)),
                        // Another call has the claim by now. The next answer says for how long.
                        Ok(None) => {}
                        Err(error) => return Err(Unanswered { error, open: false }),
                    }
                }
                // The doubt may be about this claim: granted, its answer lost, its lease over. Then no body began, and it is
                // given back.
                Ok(ClaimAnswer::InDoubt) if let Some(again) = again.take() => {
                    return Err(Unanswered { error: again.first, open: true });
                }
                Ok(answer) => return Ok(Asked::NotGranted(answer)),
                Err(error) if error.is_outcome_unknown() => {
                    let again = again.get_or_insert_with(|| Again::after(error));
                    let left = self.until().saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Unanswered { error: again.first.clone(), open: true });
                    }
                    Box::pin(sleep(again.pauses.next().unwrap_or(left).min(left))).await;
                }
                Err(error) => {
                    let open = again.is_some();
                    return Err(Unanswered { error: again.map_or(error, |again| again.first), open });
                }
            }
        }
    }

    fn until(&self) -> Instant {
        self.sent.runtime + self.call.policy.store_timeout
    }

    fn request(&self) -> Claim {
        let policy = &self.call.policy;
        Claim::new(self.owner, self.call.lease(), policy.ttl)
            .with_fingerprint(self.call.fingerprint)
            .with_on_crash(policy.on_crash)
            .with_max_attempts(policy.max_attempts)
            .with_recovers(policy.recovers)
    }
}

/// A claim that is sent again, because an earlier request may have been granted.
struct Again {
    first: StoreError,
    pauses: ExponentialBackoff,
}

impl Again {
    fn after(first: StoreError) -> Box<Self> {
        Box::new(Self { first, pauses: backoff().build() })
    }
}

/// A claim whose answer is awaited. If the caller goes away first, a background task awaits the answer and releases the
/// grant.
struct Claiming<'c, S: Store> {
    call: &'c Arc<Prepared<S>>,
    owner: Owner,
    answering: Option<Answering<S>>,
}

impl<S: Store> Claiming<'_, S> {
    /// Finds out in the background what was granted, and releases it. `answering` is `None` if the last answer left
    /// open whether the claim was granted.
    fn give_back(&self, answering: Option<Answering<S>>) {
        let work = give_back(self.call.clone(), self.owner, answering);
        self.call.finish_behind(Work::Release, work);
    }
}

impl<S: Store> Drop for Claiming<'_, S> {
    fn drop(&mut self) {
        if let Some(answering) = self.answering.take() {
            self.give_back(Some(answering));
        }
    }
}

/// Finds out what was granted to a call that went away, and releases it. No body began, so this outlives an outage of the store:
/// after the lease the next call would take the claim for a crash.
async fn give_back<S: Store>(call: Arc<Prepared<S>>, owner: Owner, answering: Option<Answering<S>>) {
    if let Some(answering) = answering {
        let answered = timeout(call.policy.store_timeout, answering).await;
        // An unused attempt releases its claim when it is dropped.
        if let Ok(Ok(_) | Err(Unanswered { open: false, .. })) = answered {
            return;
        }
    }
    let mut patience = Patience::new(&call);
    let mut fence = None;
    // Reads the record and does not claim again, because a claim that was never granted must not be granted here.
    while let Err(error) = give_up_what_is_ours(&call, owner, &mut fence).await {
        if !patience.wait_after(&error).await {
            return call.report(Event::ReleaseFailed(&error), 0);
        }
    }
}

/// Releases the key if this owner holds it under `fence`, the fence that was read first. A later read may show a higher one: then an
/// earlier release was applied and its answer lost, and what the record says now is not about this claim.
async fn give_up_what_is_ours<S: Store>(
    call: &Prepared<S>,
    owner: Owner,
    fence: &mut Option<Fence>,
) -> Result<(), StoreError> {
    let patience = call.policy.store_timeout;
    let record = timeout(patience, call.store.get(&call.key))
        .await
        .unwrap_or_else(|_| Err(unanswered("the record", patience)))?;
    let held = |record: &Record| matches!(record.state, State::InFlight | State::InDoubt);
    let Some(record) = record.filter(|record| held(record) && record.owner == owner) else {
        return Ok(());
    };
    let request = Release::new(owner, *fence.get_or_insert(record.fence), ReleaseCause::Unused);
    timeout(patience, call.store.release(&call.key, &request))
        .await
        .unwrap_or_else(|_| Err(unanswered("the release", patience)))?;
    Waiters::ring_in(&call.store, &call.key);
    Ok(())
}
