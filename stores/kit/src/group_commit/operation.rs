//! An operation, its answer, and its ticket while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use idem_core::protocol::{self, Claim, Grant, Record, Request, StoredResult, Timestamp};
use idem_core::{RecordKey, StoreError};
use tokio::sync::oneshot;

/// What to do with the record of a key.
#[derive(Debug)]
pub enum Op {
    /// Applies a request of the protocol.
    Apply(Request),
    /// Decides a claim without writing it, for a transaction of the caller.
    Look(Claim),
    /// Deletes the record.
    Forget,
    /// Reads the record.
    Get,
}

/// The answer to an [`Op`].
#[derive(Debug)]
pub enum Answer {
    /// The protocol's answer.
    Applied(protocol::Answer),
    /// The grant that a claim would get.
    Seen(Box<Seen>),
    /// Whether there was a live record.
    Forgotten(bool),
    /// The live record, if there is one.
    Found(Option<Box<Record>>),
}

/// The grant that a claim would get.
#[derive(Debug)]
pub struct Seen {
    /// The present record. Its steps are missing, or empty steps replace them.
    pub old: Option<Record>,
    /// The record that the claim would write.
    pub new: Record,
    /// The grant that the claim would get.
    pub grant: Grant,
    /// The time of the decision, by the server's clock.
    pub now: Timestamp,
}

/// An operation on the record of a key.
#[derive(Debug)]
pub struct Operation {
    /// The key of the record.
    pub key: RecordKey,
    /// What to do with the record.
    pub op: Op,
}

impl Operation {
    /// An operation on the record of this key.
    #[must_use]
    pub fn new(key: &RecordKey, op: Op) -> Self {
        Self { key: key.clone(), op }
    }

    /// Whether this operation may run in its caller's runtime: a read, a claim, a step or a result. All other
    /// operations, above all renewals and releases, run in the stores' own runtime, which no caller can
    /// block.
    pub(super) const fn is_only_for_its_caller(&self) -> bool {
        use Request::{Claim, Complete, RecordStep};
        matches!(self.op, Op::Get | Op::Apply(Claim(_) | RecordStep(_) | Complete(_)))
    }

    /// Whether this operation is a `forget` that may have been applied. A second `forget` might delete a
    /// record that was claimed in between.
    pub(super) fn must_not_be_repeated(&self, error: &StoreError) -> bool {
        matches!(self.op, Op::Forget) && error.is_outcome_unknown()
    }

    /// The size in bytes of the result that this operation carries.
    #[must_use]
    pub fn result_bytes(&self) -> usize {
        let Op::Apply(request) = &self.op else { return 0 };
        request.result().map_or(0, StoredResult::size)
    }
}

/// What [`Server::attempt`](super::Server::attempt) gets for each operation of a batch: the operation, and
/// facts about its earlier attempts.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The operation.
    pub operation: Arc<Operation>,
    /// Whether an earlier attempt left the operation without an answer.
    pub is_repeated: bool,
    /// Whether an earlier attempt may have applied the operation. For example, a batch may have failed after
    /// it applied some of its operations.
    pub may_be_done: Arc<AtomicBool>,
}

impl Ticket {
    /// A ticket for this operation.
    #[must_use]
    pub fn new(operation: Arc<Operation>) -> Self {
        Self { operation, is_repeated: false, may_be_done: Arc::default() }
    }
}

/// An operation that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// The latest time at which the operation may begin, by a clock that no test pauses.
    pub(super) deadline: Instant,
    pub(super) number: u64,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Waiting {
    /// Returns the waiting operation and the receiver of its answer. The operation must begin by `deadline`.
    pub(super) fn new(
        operation: Arc<Operation>,
        deadline: Instant,
    ) -> (Self, oneshot::Receiver<Result<Answer, StoreError>>) {
        let (reply, answered) = oneshot::channel();
        (Self { ticket: Ticket::new(operation), deadline, number: 0, reply }, answered)
    }

    pub(super) fn operation(&self) -> &Operation {
        &self.ticket.operation
    }

    /// Marks the operation as repeated, because the last attempt ended without an answer for it.
    pub(super) fn repeated(mut self) -> Self {
        self.ticket.is_repeated = true;
        self
    }

    pub(super) fn answer(self, mut answer: Result<Answer, StoreError>) {
        if let Err(error) = &answer
            && self.ticket.may_be_done.load(Ordering::Relaxed)
            && error.is_transient()
            && !error.is_outcome_unknown()
        {
            answer = Err(StoreError::outcome_unknown(error.to_string()));
        }
        // An error here means that the caller no longer waits.
        let _ = self.reply.send(answer);
    }

    /// Whether the operation can be left out: its caller no longer waits, and nobody else needs its effect.
    /// Other callers need the effect of a result, a step or a release.
    pub(super) fn is_pointless(&self) -> bool {
        use Request::{Complete, RecordStep, Release};
        let counts = matches!(self.operation().op, Op::Apply(Complete(_) | RecordStep(_) | Release(_)));
        self.reply.is_closed() && !counts
    }
}

/// The answers to a batch, in its order. `None` if an operation has no answer yet and must be repeated.
pub type Answers = Vec<Option<Result<Answer, StoreError>>>;

pub(super) fn unanswered() -> StoreError {
    StoreError::outcome_unknown("the server answered fewer operations than the statement carried")
}

#[cfg(test)]
mod tests {
    use idem_core::{Key, Scope};

    use super::*;

    #[test]
    fn what_may_be_done_is_not_reported_as_undone() {
        for may_be_done in [false, true] {
            let key = RecordKey::new(Scope::new("orders").unwrap(), Key::new("1").unwrap());
            let (waiting, mut answered) =
                Waiting::new(Arc::new(Operation::new(&key, Op::Get)), Instant::now());
            waiting.ticket.may_be_done.store(may_be_done, Ordering::Relaxed);
            waiting.answer(Err(StoreError::unavailable("the server is away")));
            let error = answered.try_recv().unwrap().unwrap_err();
            assert_eq!(error.is_outcome_unknown(), may_be_done, "{error}");
        }
    }
}
