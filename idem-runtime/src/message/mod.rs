//! What a consumer of messages is to do with one, after an idempotent call made for it.
//!
//! Owns the vocabulary that all brokers share. It knows no broker.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::context::{Ending, observed};
use crate::error::{Error, StepError};

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// It is done with: its effect is there, now or from an earlier delivery.
    Acknowledge,
    /// Deliver it again, not sooner than this.
    #[non_exhaustive]
    Retry {
        /// How long from now: the rest of another's lease, or longer after each attempt.
        after: Duration,
    },
    /// Delivering it again would give the same. Set it aside for a person, in a dead-letter queue.
    #[non_exhaustive]
    Reject {
        /// Why.
        reason: Reason,
    },
}

/// Why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its body failed for good, as the operation's `terminal` says.
    Terminal,
    /// Its key was used with other arguments.
    Mismatch,
    /// A worker went away in the middle of it under `on_crash = "in_doubt"`.
    InDoubt,
    /// It used up its attempts.
    Exhausted,
    /// Its recorded result does not decode.
    Undecodable,
    /// A step of its body was refused, or what is recorded of one cannot be given.
    Step,
    /// It has no key, or one that cannot be used.
    InvalidKey,
}

impl Reason {
    /// A stable word, for logs and for a header of the dead letter.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Mismatch => "mismatch",
            Self::InDoubt => "in_doubt",
            Self::Exhausted => "exhausted",
            Self::Undecodable => "undecodable",
            Self::Step => "step",
            Self::InvalidKey => "invalid_key",
        }
    }
}

/// What a call gave, and what is to be done with its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled<T> {
    /// What the call gave.
    pub value: T,
    /// What is to be done with the message it was made for.
    pub disposition: Disposition,
}

/// After the first failure, and at the most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Makes a call for a message, and tells what is to be done with the message:
///
/// | the call | the message |
/// |---|---|
/// | ran and succeeded, or was replayed | acknowledge |
/// | has run, and its result is not stored | acknowledge |
/// | is in flight elsewhere, or not due | retry when it can be claimed |
/// | failed, and was released | retry, from 1 s after the first attempt to 5 min |
/// | failed for good (`terminal`), now or when it was recorded | reject |
/// | mismatch, in doubt, exhausted, undecodable, no usable key | reject |
/// | failed as a step was refused: repeated, another input, undecodable, not stored | reject |
/// | the store is down, the lease was lost, the operation is misconfigured | retry after 1 s |
///
/// A call that makes no idempotent call is acknowledged if it gives `Ok`, and retried after 1 s if not.
/// Where it makes several, the last one that gave no value decides.
///
/// ```
/// # use idem_runtime as idem;
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
    let (value, _, ending) = observed(call).await;
    let disposition = match (&value, ending) {
        (Ok(_), _) => Disposition::Acknowledge,
        (Err(_), Some(ending)) => disposition(&ending),
        (Err(_), None) => Disposition::Retry { after: PAUSES.0 },
    };
    Settled { value, disposition }
}

fn disposition(ending: &Ending) -> Disposition {
    let reason = match ending {
        Ending::Released { attempt } => return Disposition::Retry { after: pause(*attempt) },
        Ending::Terminal => Reason::Terminal,
        Ending::Refused(error) => match error {
            Error::InFlight { retry_after, .. } | Error::NotDue { retry_after, .. } => {
                return Disposition::Retry { after: *retry_after };
            }
            Error::ResultNotStored { .. } => return Disposition::Acknowledge,
            Error::Store { .. }
            | Error::NotRecorded { .. }
            | Error::LeaseLost { .. }
            | Error::Configuration { .. } => {
                return Disposition::Retry { after: PAUSES.0 };
            }
            Error::Step { source: StepError::Store(_), .. } => return Disposition::Retry { after: PAUSES.0 },
            Error::Step { .. } => Reason::Step,
            Error::Mismatch { .. } => Reason::Mismatch,
            Error::InDoubt { .. } => Reason::InDoubt,
            Error::Exhausted { .. } => Reason::Exhausted,
            Error::Undecodable { .. } => Reason::Undecodable,
            Error::MissingKey { .. } | Error::InvalidKey { .. } => Reason::InvalidKey,
        },
    };
    Disposition::Reject { reason }
}

/// After this attempt.
fn pause(attempt: u32) -> Duration {
    let (first, longest) = PAUSES;
    let pauses =
        ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest).without_max_times();
    // Enough to have come to the longest.
    let before = usize::try_from(attempt.saturating_sub(1).min(32)).unwrap_or(0);
    pauses.build().nth(before).unwrap_or(longest)
}
