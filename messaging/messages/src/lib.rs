//! Decides how a consumer settles a message after the idempotent call for the message.
//!
//! Owns the terms that all brokers share, and the worker that runs a handler for each message. This crate
//! knows no broker: a [`Broker`] knows how to read messages, and a [`Delivery`] knows how to settle one
//! message. An observer of the engine's calls tells this crate the outcome of a call.
//!
//! Use the crate `idem-rs`, which re-exports all of this as `idem::message` and `idem::lambda`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Code that panics or prints is for tests, examples and benches.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod broker;
mod broker_error;
mod consumer;
mod dead_letter;
mod delivery;
mod disposition;
mod error_text;
mod gate;
mod held_keys;
#[cfg(feature = "lambda")]
pub mod lambda;
mod lanes;
mod observation;
mod redrive;
mod report;
mod settings;
mod settling;
mod summary;
mod tasks;
mod work;

use std::sync::Arc;
use std::time::Duration;

use idem_runtime::Outcome;
use idem_runtime::observer::CallEnd;
use idem_runtime::{Error, ErrorKind, StepError, StoreErrorKind};

pub use broker::{Broker, GroupBy, Plan, Reader, Room, work};
pub use broker_error::BrokerError;
pub use consumer::Consumer;
pub use dead_letter::{
    CONSUMER, DELIVERED, DeadLetter, ERROR, KEY, MESSAGE, OPERATION, ORIGIN, REASON, TRIES,
};
pub use delivery::Delivery;
pub use disposition::{Disposition, Reason};
pub use redrive::{Redrive, RedriveSummary, StoredLetter, is_header_of_letter, list};
pub use summary::{Progress, Summary};
pub use tasks::in_tasks;

use observation::Observation;

/// The result of a call, and how its message must be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled<T> {
    /// The result of the call.
    pub value: T,
    /// How the message of the call must be settled.
    pub disposition: Disposition,
}

/// The pause after the first failure, and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// A retry after the shortest pause, for failures that may end at any time.
const AT_ONCE: Disposition = Disposition::retry(PAUSES.0);

/// Awaits `call`, and returns how its message must be settled. The idempotent call inside `call` decides:
///
/// | the call | the message |
/// |---|---|
/// | ran and succeeded, or was replayed | acknowledge |
/// | has run, but its result is not stored | acknowledge |
/// | has a value that `record_if` refused | retry; the pause grows from 1 s (after the first attempt) to 5 min |
/// | is in flight elsewhere, or not due | retry when the key can be claimed |
/// | failed, and its key was released | retry; the pause grows from 1 s (after the first attempt) to 5 min |
/// | failed for good (`terminal`), now or in an earlier delivery | reject |
/// | mismatch, in doubt, exhausted, undecodable, a record that cannot be read, no usable key | reject |
/// | failed because a step was refused: repeated, another input, undecodable, not stored | reject |
/// | the store is down, the lease was lost, or no time is left before the call's deadline | retry after 1 s |
/// | the call is misconfigured, or timed out | retry; the pause grows from 1 s (after the first try) to 5 min; a [`Consumer`] rejects the message after [`max_tries`](Consumer::max_tries) |
///
/// If `call` makes no idempotent call, the message is acknowledged if `call` returns `Ok`, and retried after
/// 1 s if `call` returns an error. If `call` returns an error after several idempotent calls, the last
/// idempotent call that ended without a value decides. If `call` returns `Ok` although an idempotent call in
/// it failed, the message is acknowledged.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use idem::message::{Disposition, settle};
/// use idem::{Error, MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let ship = Operation::new("orders.ship");
/// for _delivery in 0..2 {
///     let call = ship.run(&store, "order-42", || async { Ok::<_, Error>("parcel 7".to_owned()) });
///     let settled = settle(call).await;
///     assert_eq!(settled.value.unwrap(), "parcel 7");
///     assert_eq!(settled.disposition, Disposition::Acknowledge);
/// }
/// # }
/// ```
pub async fn settle<F, T, E>(call: F) -> Settled<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let tries = Tries { number: 1, limit: u32::MAX };
    let observation = Arc::new(Observation::default());
    let (value, decision) = settle_by(&observation, call, tries, |_, _, proposed| proposed).await;
    Settled { value, disposition: decision.disposition }
}

/// How a message's call ended, and how the message is settled.
pub(crate) struct Decision {
    pub(crate) disposition: Disposition,
    /// How the call got its result.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) cause: Cause,
    /// The attempt number that `choose` gets.
    pub(crate) attempt: u32,
}

/// Why a message is settled in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Done,
    /// The call has a value that `record_if` refused to keep.
    NotKept,
    /// The body failed, and the key was released.
    Failed,
    Terminal,
    /// The handler failed, but no idempotent call failed.
    Unclaimed,
    Panicked,
    /// The store failed, which is not the message's fault.
    Store,
    /// The call was refused, for this reason.
    Refused(ErrorKind),
}

impl Cause {
    fn of(succeeded: bool, ending: Option<&CallEnd>) -> Self {
        let ending = match ending {
            _ if succeeded => return Self::Done,
            None => return Self::Unclaimed,
            Some(ending) => ending,
        };
        match ending {
            CallEnd::Released { .. } => Self::Failed,
            CallEnd::Terminal => Self::Terminal,
            CallEnd::Refused(
                Error::Store { source, .. }
                | Error::NotRecorded { source, .. }
                | Error::Step { source: StepError::Store(source), .. },
            ) if is_of_the_store(source.kind()) => Self::Store,
            CallEnd::Refused(error) => Self::Refused(error.kind()),
        }
    }

    /// A stable name, for events and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotKept => "not_kept",
            Self::Failed => "failed",
            Self::Terminal => "terminal",
            Self::Unclaimed => "unclaimed",
            Self::Panicked => "panicked",
            Self::Store => "store",
            Self::Refused(kind) => kind.as_str(),
        }
    }
}

/// Whether the store itself failed, so that requests about other keys fail, too. An unreadable record, or a
/// key or result that is too large, concerns one message only.
const fn is_of_the_store(kind: StoreErrorKind) -> bool {
    !matches!(kind, StoreErrorKind::CorruptRecord | StoreErrorKind::TooLarge)
}

/// How often a message was tried, and how often it may be tried.
#[derive(Clone, Copy)]
pub(crate) struct Tries {
    /// The number of tries, including this one.
    pub(crate) number: u32,
    pub(crate) limit: u32,
}

impl Tries {
    /// Proposes another try, or a rejection after the last try.
    pub(crate) fn proposed(self, reason: Reason) -> Disposition {
        if self.number >= self.limit {
            Disposition::Reject { reason }
        } else {
            Disposition::Retry { after: pause(self.number) }
        }
    }
}

/// As [`settle`], but if the handler fails and idem did not refuse its call, `choose` decides how the message
/// is settled. `observation` belongs to the caller, and stays alive when the call is dropped.
pub(crate) async fn settle_by<F, T, E>(
    observation: &Arc<Observation>,
    call: F,
    tries: Tries,
    choose: impl FnOnce(&E, u32, Disposition) -> Disposition,
) -> (Result<T, E>, Decision)
where
    F: Future<Output = Result<T, E>>,
{
    let (value, outcome, ending) = observation.of_call(call).await;
    let kept = !matches!(outcome, Some(Outcome::NotKept { .. }));
    let cause =
        if value.is_ok() && !kept { Cause::NotKept } else { Cause::of(value.is_ok(), ending.as_ref()) };
    let attempt = outcome.and_then(|outcome| outcome.attempt()).unwrap_or(tries.number);
    let disposition = match &value {
        // The message is retried, because only another delivery makes the call again.
        Ok(_) if !kept => Disposition::Retry { after: pause(attempt) },
        Ok(_) => Disposition::Acknowledge,
        Err(error) => {
            let proposed = || tries.proposed(Reason::Exhausted);
            let proposed = ending.as_ref().map_or_else(proposed, |ending| disposition(ending, tries));
            if let Some(CallEnd::Refused(_)) = ending { proposed } else { choose(error, attempt, proposed) }
        }
    };
    (value, Decision { disposition, outcome, cause, attempt })
}

fn disposition(ending: &CallEnd, tries: Tries) -> Disposition {
    let reason = match ending {
        CallEnd::Released { attempt, retry_after, .. } => {
            return Disposition::Retry { after: pause(*attempt).max(*retry_after) };
        }
        CallEnd::Terminal => Reason::Terminal,
        CallEnd::Refused(error) => match error {
            Error::InFlight { retry_after, .. } | Error::NotDue { retry_after, .. } => {
                return Disposition::Retry { after: *retry_after };
            }
            Error::ResultNotStored { .. } => return Disposition::Acknowledge,
            Error::Store { source, .. } => match source.kind() {
                StoreErrorKind::CorruptRecord => Reason::CorruptRecord,
                // Before the body runs, only the key can be too large.
                StoreErrorKind::TooLarge => Reason::InvalidKey,
                _ => return AT_ONCE,
            },
            Error::NotRecorded { source, .. } if !is_of_the_store(source.kind()) => {
                return tries.proposed(Reason::Exhausted);
            }
            // The message may be the cause: each of its tries may run out of time.
            Error::TimedOut { .. } => return tries.proposed(Reason::Exhausted),
            // The message may be the cause. For example, it contains a number that is not finite and so has
            // no fingerprint, or a `ttl` of zero.
            Error::Configuration { .. } => return tries.proposed(Reason::Misconfigured),
            Error::NotRecorded { .. } | Error::LeaseLost { .. } | Error::NoTimeLeft { .. } => return AT_ONCE,
            Error::Step { source: StepError::Store(source), .. } if is_of_the_store(source.kind()) => {
                return AT_ONCE;
            }
            Error::Step { .. } => Reason::Step,
            Error::Mismatch { .. } => Reason::Mismatch,
            Error::InDoubt { .. } => Reason::InDoubt,
            Error::Exhausted { .. } => Reason::Exhausted,
            Error::Undecodable { .. } => Reason::Undecodable,
            Error::MissingKey { .. } | Error::InvalidKey { .. } => Reason::InvalidKey,
            // An error that a later version of the runtime adds is treated as if no idempotent call had
            // failed.
            _ => return tries.proposed(Reason::Exhausted),
        },
    };
    Disposition::Reject { reason }
}

fn pause(attempt: u32) -> Duration {
    // With 32 doublings, the pause is the longest pause.
    let before = attempt.saturating_sub(1).min(32);
    pauses(PAUSES).nth(before as usize).unwrap_or(PAUSES.1)
}

/// Pauses that begin with `first` and double each time, up to `longest`.
fn pauses((first, longest): (Duration, Duration)) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idem_core::{KeyBuilder, KeyError, RecordKey, Scope, StoreError};
    use idem_runtime::observer::CallEnd;
    use idem_runtime::{CallId, Error, Loss, NotStored, StepError};

    use super::{Disposition, Reason, Tries, disposition};

    #[test]
    fn a_refused_call_is_settled_by_its_error() {
        let key = KeyBuilder::new().part("a").finish().unwrap();
        let call = || CallId::from(&RecordKey::new(Scope::new("orders").unwrap(), key.clone()));
        let store = |source| Error::Store { call: call(), source };
        let step = |source| Error::Step { call: call(), step: "charge".into(), source };
        let away = || StoreError::unavailable("away");
        let retry = |seconds| Disposition::retry(Duration::from_secs(seconds));
        let (due, invalid) = (Duration::from_secs(20), KeyError::Missing);
        let rows = [
            (Error::InFlight { call: call(), retry_after: due, reentrant: false }, retry(20)),
            (Error::NotDue { call: call(), retry_after: due }, retry(20)),
            (Error::ResultNotStored { call: call(), reason: NotStored::TooLarge }, Disposition::Acknowledge),
            (Error::Mismatch { call: call() }, Disposition::reject(Reason::Mismatch)),
            (Error::InDoubt { call: call() }, Disposition::reject(Reason::InDoubt)),
            (Error::Exhausted { call: call(), attempts: 1 }, Disposition::reject(Reason::Exhausted)),
            (
                Error::Undecodable { call: call(), reason: "".into() },
                Disposition::reject(Reason::Undecodable),
            ),
            (store(StoreError::corrupt_record("cut")), Disposition::reject(Reason::CorruptRecord)),
            (step(StepError::InputChanged), Disposition::reject(Reason::Step)),
            (Error::MissingKey { operation: "".into() }, Disposition::reject(Reason::InvalidKey)),
            (
                Error::InvalidKey { operation: "".into(), source: invalid },
                Disposition::reject(Reason::InvalidKey),
            ),
            (store(StoreError::too_large(2, 1)), Disposition::reject(Reason::InvalidKey)),
            (store(away()), retry(1)),
            (store(StoreError::outcome_unknown("cut")), retry(1)),
            (step(StepError::Store(away())), retry(1)),
            (Error::NotRecorded { call: call(), source: away() }, retry(1)),
            (Error::LeaseLost { call: call(), loss: Loss::TakenOver }, retry(1)),
        ];
        let at = |number, error| disposition(&CallEnd::Refused(error), Tries { number, limit: 10 });
        for (error, expected) in rows {
            assert_eq!(at(3, error.clone()), expected, "{error}");
        }
        let timed_out = Error::TimedOut { call: call(), after: due };
        for (error, reason) in
            [(Error::configuration("", "ttl"), Reason::Misconfigured), (timed_out, Reason::Exhausted)]
        {
            assert_eq!(at(9, error.clone()), retry(256), "{error}");
            assert_eq!(at(10, error.clone()), Disposition::reject(reason), "{error}");
        }
    }
}
