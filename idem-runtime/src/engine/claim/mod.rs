//! The second phase: how a call gets the right to run its body, or a result or an error instead.
//!
//! Owns the claim with its retries, what its answer means for the call, and what a call does while another
//! call is in flight. It also owns a rule: if the answer to a claim never came, or nobody awaits it any more,
//! the claim is released. No body began under such a claim. But without a release, the next call would treat
//! the end of the lease as a crash. [`waiters`] reads a key for all calls that wait for it, and [`claimed`]
//! is what a granted claim consists of.

pub(super) mod claimed;
pub(super) mod waiters;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff};
use futures_util::future::{Either, select};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::claimed::{AnyClaim, renew_before_start};
use self::waiters::{Refusal, Waiter, Waiters};
use crate::engine::lease::Sent;
use crate::engine::prepare::Call;
use crate::engine::record::attempt::Attempt;
use crate::engine::record::background::Work;
use crate::engine::record::release::Patience;
#[cfg(feature = "metrics")]
use crate::engine::report;
use crate::engine::report::{CallEvent, Event};
use crate::engine::retry::{answered, backoff, unanswered, within};
use crate::error::{Error, StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{
    ClaimAnswer, Fence, Owner, Record, Release, ReleaseCause, Replay, State, recorded_answer,
};

/// What a call may do.
pub(crate) enum Entry<S: Store> {
    /// Run the body under this claim.
    Run(Attempt<S>),
    /// Return this result.
    Replay(Replay),
    /// Run the body without a claim.
    Unprotected,
}

/// The answer to a claim: an attempt, or a refusal or replay.
type Claiming<S> = Result<Attempt<S>, ClaimAnswer>;

/// Claims the key, and waits for it if the policy says so.
pub(crate) async fn enter<S: Store>(call: &Arc<Call<S>>) -> Result<Entry<S>, Error> {
    let entering = pin!(async {
        let claiming = match claim(call).await {
            Ok(Err(answer))
                if !call.policy.wait.is_zero()
                    && !call.is_reentrant()
                    && let Some(refusal) = worth_waiting(&answer) =>
            {
                call.report(&Event::BUSY, 0);
                Box::pin(wait(call, refusal)).await?
            }
            Ok(claiming) => claiming,
            Err(error) if call.policy.fail_open && may_fail_open(&error) => {
                call.report(&Event::UNPROTECTED.by(&error), 0);
                return Ok(Entry::Unprotected);
            }
            Err(error) => return Err(call.store_failed(error)),
        };
        match claiming {
            Ok(attempt) => {
                let grant = attempt.claimed.grant;
                let event = if grant.recovered { &Event::RECOVERED } else { &Event::CLAIMED };
                call.report(event, grant.attempt);
                call.tell(&CallEvent::Granted { key: &call.key, attempt: grant.attempt });
                Ok(Entry::Run(attempt))
            }
            Err(ClaimAnswer::Replay(replay)) => Ok(Entry::Replay(replay)),
            Err(refusal) => Err(call.refusal(&refusal)),
        }
    });
    call.in_span(entering).await
}

/// Whether an operation that fails open may run its body after this error. It may if the store is down or set
/// up wrongly.
fn may_fail_open(error: &StoreError) -> bool {
    match error.kind() {
        StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown | StoreErrorKind::Configuration => true,
        // With any other kind of error, even a kind of a later version, the body may have run before, so it
        // does not run unprotected.
        _ => false,
    }
}

impl<S: Store> Call<S> {
    /// The error for a call whose body does not run, because the store failed.
    pub(crate) fn store_failed(&self, source: StoreError) -> Error {
        self.report(&Event::STORE_FAILED.by(&source), 0);
        self.refuse(Error::Store { call: self.id(), source })
    }

    /// The error for a call that gets neither the key nor a result.
    pub(crate) fn refusal(&self, answer: &ClaimAnswer) -> Error {
        let call = self.id();
        let (event, attempt, error) = match *answer {
            ClaimAnswer::Busy { retry_after } => {
                (&Event::BUSY, 0, Error::InFlight { call, retry_after, reentrant: self.is_reentrant() })
            }
            ClaimAnswer::RetryAt { retry_after } => (&Event::NOT_DUE, 0, Error::NotDue { call, retry_after }),
            ClaimAnswer::Mismatch => (&Event::MISMATCH, 0, Error::Mismatch { call }),
            ClaimAnswer::InDoubt => (&Event::IN_DOUBT, 0, Error::InDoubt { call }),
            ClaimAnswer::Exhausted { attempts } => {
                (&Event::EXHAUSTED, attempts, Error::Exhausted { call, attempts })
            }
            // The callers handle grants and replays, so this is an answer that a later version added.
            _ => {
                let unknown = "the store gave an answer that this version of idem does not know; use one version of both";
                return self.refuse(Error::configuration(self.key.scope().as_str(), unknown));
            }
        };
        self.report(event, attempt);
        self.refuse(error)
    }
}

/// Claims the key for a new owner. If the answer is lost, the claim is sent again with the same owner, within
/// the store timeout.
async fn claim<S: Store>(call: &Arc<Call<S>>) -> Result<Claiming<S>, StoreError> {
    let (owner, sent) = (Owner::random(), call.send_time());
    let patience = call.policy.store_timeout;
    let until = sent.runtime + patience;
    loop {
        let mut open = UnansweredClaim { call, owner, answering: None };
        // Written directly into the box, because `Box::pin` would make the future elsewhere and move it.
        let place = Box::new_uninit();
        let answering = Box::into_pin(Box::write(place, claim_as(call.clone(), owner, sent)));
        let answering = open.answering.insert(answering);
        // After the timeout, dropping `open` lets the claim continue in the background. If the store still
        // grants the claim, the claim is then released.
        let answer = within(until, answering).await.map_err(|_| unanswered("the claim", patience))?;
        open.answering = None;
        let attempt = match answer {
            Ok(Ok(attempt)) if attempt.claimed.lease.is_late() => attempt,
            Ok(claiming) => return Ok(claiming),
            Err(NoAnswer { error, may_be_granted }) => {
                if may_be_granted {
                    call.finish_behind(Work::Release, give_back(call.clone(), owner, None));
                }
                return Err(error);
            }
        };
        // A late grant is confirmed only while the caller waits. If the grant arrives in the background, the
        // attempt is dropped, which gives the grant back.
        let claim: Arc<dyn AnyClaim> = attempt.claimed.clone();
        let confirmed = Box::pin(within(until, renew_before_start(&claim, until))).await;
        confirmed.map_err(|_| unanswered("the claim", patience))??;
        if !claim.held().lease.is_lost() {
            return Ok(Ok(attempt));
        }
        // The grant is lost, so another call may have the key. This loop claims again, and the answer says
        // whether, and how long, this call must wait.
    }
}

struct NoAnswer {
    error: StoreError,
    may_be_granted: bool,
}

type Answering<S> = Pin<Box<dyn Future<Output = Result<Claiming<S>, NoAnswer>> + Send>>;

/// Sends the claim of one owner. After each error that leaves the outcome unknown, sends the claim again,
/// until the store timeout is over. The timeout counts from the first sending.
async fn claim_as<S: Store>(call: Arc<Call<S>>, owner: Owner, sent: Sent) -> Result<Claiming<S>, NoAnswer> {
    // Boxed, because retries are rare, and otherwise the future of every call would have room for them.
    let mut retries: Option<Box<Retries>> = None;
    loop {
        #[cfg(feature = "metrics")]
        let begin = Instant::now();
        let request = call.claim(owner, call.lease_from_now()).into();
        let answer = call.store.apply(&call.key, request).await.and_then(ClaimAnswer::try_from);
        #[cfg(feature = "metrics")]
        report::store_answered::<S>(&call.key, "claim", begin, answer.is_ok());
        match answer {
            Ok(ClaimAnswer::Granted(grant)) => return Ok(Ok(Attempt::new(&call, owner, grant, sent))),
            // The record in doubt may be this claim itself: the store granted it, the answer was lost, and
            // the lease expired. No body ran in that case, so the engine gives the claim back.
            Ok(ClaimAnswer::InDoubt) if let Some(retries) = retries.take() => {
                return Err(NoAnswer { error: retries.first_error, may_be_granted: true });
            }
            Ok(answer) => return Ok(Err(answer)),
            Err(error) if error.is_outcome_unknown() => {
                let retries = retries.get_or_insert_with(|| {
                    Box::new(Retries { first_error: error, pauses: backoff().build() })
                });
                let until = sent.runtime + call.policy.store_timeout;
                let remaining = until.saturating_duration_since(Instant::now());
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

/// A claim that is sent again, because an earlier request may have been granted.
struct Retries {
    first_error: StoreError,
    pauses: ExponentialBackoff,
}

/// A claim whose answer is awaited. If the caller goes away first, a background task awaits the answer and
/// releases the grant.
struct UnansweredClaim<'c, S: Store> {
    call: &'c Arc<Call<S>>,
    owner: Owner,
    answering: Option<Answering<S>>,
}

impl<S: Store> Drop for UnansweredClaim<'_, S> {
    fn drop(&mut self) {
        if let Some(answering) = self.answering.take() {
            let work = give_back(self.call.clone(), self.owner, Some(answering));
            self.call.finish_behind(Work::Release, work);
        }
    }
}

/// The caller of a claim went away or got an error, but the store may have granted the claim. In this case,
/// releases the key, even after an outage of the store. `answering` waits for the store's answer. It is
/// `None` if no answer comes any more.
async fn give_back<S: Store>(call: Arc<Call<S>>, owner: Owner, answering: Option<Answering<S>>) {
    if let Some(answering) = answering {
        let answer = timeout(call.policy.store_timeout, answering).await;
        // A granted attempt releases its claim when it is dropped. The other answers granted nothing.
        if let Ok(Ok(_) | Err(NoAnswer { may_be_granted: false, .. })) = answer {
            return;
        }
    }
    let mut patience = Patience::new(&call);
    let mut fence = None;
    // Reads the record and does not claim again, because a claim that was never granted must not be granted
    // here.
    while let Err(error) = release_grant(&call, owner, &mut fence).await {
        if !patience.wait_after(&error).await {
            return call.report(&Event::RELEASE_FAILED.by(&error), 0);
        }
    }
}

/// Releases the key if this owner holds it under `fence`: the fence that the first read found. If a later
/// read finds a higher fence, an earlier release was applied and only its answer was lost. The store then
/// refuses this release, because the fences differ.
async fn release_grant<S: Store>(
    call: &Call<S>,
    owner: Owner,
    fence: &mut Option<Fence>,
) -> Result<(), StoreError> {
    let patience = call.policy.store_timeout;
    let record = answered("the record", patience, call.store.get(&call.key)).await?;
    let held = |record: &Record| matches!(record.state, State::InFlight | State::InDoubt);
    let Some(record) = record.filter(|record| held(record) && record.owner == owner) else {
        return Ok(());
    };
    let request = Release::new(owner, *fence.get_or_insert(record.fence), ReleaseCause::Unused);
    answered("the release", patience, call.store.release(&call.key, &request)).await?;
    Waiters::wake_in(&call.store, &call.key);
    Ok(())
}

/// The refusal in this answer; `None` if waiting does not help.
fn worth_waiting(answer: &ClaimAnswer) -> Option<Refusal> {
    match answer {
        ClaimAnswer::Busy { retry_after } => Some(Refusal::now(*retry_after, true)),
        ClaimAnswer::RetryAt { retry_after } => Some(Refusal::now(*retry_after, false)),
        _ => None,
    }
}

/// Waits until this call gets the key or a result, for as long as the policy allows.
async fn wait<S: Store>(call: &Arc<Call<S>>, refusal: Refusal) -> Result<Claiming<S>, Error> {
    let begin = Instant::now();
    let deadline = begin + call.policy.wait;
    let patience = call.policy.store_timeout;
    let mut waiter = Waiters::join(&call.store, &call.key, &call.runtime, patience, refusal);
    let waited = timeout_at(deadline, until_claimed(call, &mut waiter, deadline)).await;
    call.report(&Event::WAITED.waited(begin.elapsed()), 0);
    match waited {
        Ok(claiming) => claiming,
        // If the poll has not read the key recently, this call claims once more, so that its error is up to
        // date.
        Err(_) => match waiter.poll.refusal(patience) {
            Some(answer) => Ok(Err(answer)),
            None => claim(call).await.map_err(|error| call.store_failed(error)),
        },
    }
}

/// Returns when a claim is granted, when there is a result, or when the answer to a claim shows that waiting
/// does not help.
async fn until_claimed<S: Store>(
    call: &Arc<Call<S>>,
    Waiter { poll, result }: &mut Waiter,
    deadline: Instant,
) -> Result<Claiming<S>, Error> {
    loop {
        {
            let recorded = pin!(result.wait_for(Option::is_some));
            // `recorded` cannot fail: its sender is in the poll, and this waiter keeps the poll alive.
            if let Either::Left((Ok(record), _)) = select(recorded, pin!(poll.claimable.notified())).await
                && let Some(record) = &*record
                && let Some(answer) = recorded_answer(record, &call.claim(Owner::random(), Duration::ZERO))
            {
                return Ok(Err(answer));
            }
        }
        match claim(call).await {
            Ok(Err(answer)) if let Some(refusal) = worth_waiting(&answer) => {
                *poll.last_refusal() = refusal;
            }
            Ok(claiming) => {
                // Wakes the poll, so that the next waiter learns at once what has changed.
                poll.changed.notify_one();
                return Ok(claiming);
            }
            // The store has said that the key is in flight or not due, so the body must not run unprotected.
            // Waiting may help.
            Err(error) if error.is_transient() && Instant::now() < deadline => {}
            Err(error) => return Err(call.store_failed(error)),
        }
    }
}
