//! The store's operations, their answers, and a ticket for each that waits.
//!
//! Knows nothing of connections and SQL.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, RecordedStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult,
};

/// A request to the store.
#[derive(Debug)]
pub(super) enum Op {
    Claim(Claim),
    Renew(Renew),
    RecordStep(RecordStep),
    Complete(Complete),
    Release(Release),
    Resolve(Resolution),
    Get,
    Forget,
}

/// The answer to an [`Op`].
#[derive(Debug)]
pub(super) enum Answer {
    Claim(ClaimAnswer),
    Renew(RenewAnswer),
    RecordStep(RecordStepAnswer),
    Complete(CompleteAnswer),
    Release(ReleaseAnswer),
    Resolve(ResolveAnswer),
    Get(Option<Record>),
    Forget(bool),
}

/// A request and its key.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) key: RecordKey,
    pub(super) op: Op,
}

/// The kinds of operations. Operations of one kind share a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Claims,
    Renewals,
    Recordings,
    Completions,
    /// Reads the record, decides, and writes.
    CompareAndSwap,
    Reads,
    /// Each in a statement of its own.
    Single,
}

pub(super) const KINDS: [Kind; 7] = [
    Kind::Claims,
    Kind::Renewals,
    Kind::Recordings,
    Kind::Completions,
    Kind::CompareAndSwap,
    Kind::Reads,
    Kind::Single,
];

impl Op {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Claim(_) => Kind::Claims,
            Self::Renew(_) => Kind::Renewals,
            Self::RecordStep(_) => Kind::Recordings,
            Self::Complete(_) => Kind::Completions,
            Self::Release(_) | Self::Resolve(_) => Kind::CompareAndSwap,
            Self::Get => Kind::Reads,
            Self::Forget => Kind::Single,
        }
    }

    /// Whether it can only be of use to a caller that waits for it, in its own runtime.
    pub(super) const fn is_waited_for(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::RecordStep(_) | Self::Complete(_) | Self::Get)
    }

    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Complete(Complete { result: StoredResult::Value(bytes), .. })
            | Self::Resolve(
                Resolution::Record(_, StoredResult::Value(bytes))
                | Resolution::RecordSeen(_, _, StoredResult::Value(bytes)),
            )
            | Self::RecordStep(RecordStep {
                step: RecordedStep { result: StoredResult::Value(bytes), .. },
                ..
            }) => bytes.len(),
            _ => 0,
        }
    }
}

impl Kind {
    /// The class: changes wait for the disk together, and reads do not wait for it.
    pub(super) const fn class(self) -> usize {
        match self {
            Self::Reads => 1,
            _ => 0,
        }
    }
}

/// One operation that waits for its answer.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) asked: Arc<Operation>,
    /// The latest time at which it may begin.
    pub(super) deadline: Instant,
    pub(super) number: u64,
    pub(super) reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Ticket {
    pub(super) fn answer(self, answer: Result<Answer, StoreError>) {
        // The caller may have gone.
        let _ = self.reply.send(answer);
    }

    pub(super) fn is_pointless(&self) -> bool {
        self.reply.is_closed()
    }
}

/// The answers to a batch, in its order. `None` where the statement had read as much as it may: repeat the operation.
pub(super) type Answers = Vec<Option<Result<Answer, StoreError>>>;

/// The error of an answer that is missing.
pub(super) fn unanswered() -> StoreError {
    StoreError::outcome_unknown("the server answered fewer operations than the statement carried")
}
