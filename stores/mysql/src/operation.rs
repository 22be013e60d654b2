//! The store's operations, their answers, and a ticket for each that waits.
//!
//! Knows nothing of connections and SQL.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use idem_core::protocol::{self, Apply as _, Claim, Grant, Record, Request, StoredResult, Timestamp};
use idem_core::{RecordKey, StoreError};

/// A request to the store.
#[derive(Debug)]
pub(super) enum Op {
    Apply(Request),
    /// As the claim, but writes nothing: for a transaction of a caller.
    Look(Claim),
    Forget,
    Get,
}

/// The answer to an [`Op`].
#[derive(Debug)]
pub(super) enum Answer {
    Applied(protocol::Answer),
    Seen(Box<Seen>),
    Forgotten(bool),
    Found(Option<Box<Record>>),
}

/// The grant that a claim would get.
#[derive(Debug)]
pub(super) struct Seen {
    /// The present record, with blanks in place of its steps.
    pub(super) old: Option<Record>,
    /// The record that the claim would write.
    pub(super) new: Record,
    pub(super) grant: Grant,
    pub(super) now: Timestamp,
}

/// A request and its key.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) key: RecordKey,
    pub(super) op: Op,
}

impl Operation {
    pub(super) const fn is_read(&self) -> bool {
        matches!(self.op, Op::Get)
    }

    /// Whether one exchange can settle it that leaves no lock behind.
    pub(super) const fn may_be_alone(&self) -> bool {
        matches!(self.op, Op::Get | Op::Apply(Request::Claim(_) | Request::Complete(_)))
    }

    /// About how many bytes it adds to statements.
    pub(super) fn weight(&self) -> usize {
        let name = self.key.scope().as_str().len() + self.key.key().as_str().len();
        let result = match &self.op {
            Op::Apply(request) => match request.result() {
                Some(StoredResult::Value(bytes)) => bytes.len(),
                _ => 0,
            },
            Op::Look(_) | Op::Forget | Op::Get => 0,
        };
        1_024 + 4 * name + 2 * result
    }
}

/// One operation that waits for its answer.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) asked: Arc<Operation>,
    /// Whether it goes the long way: locked, judged and written in one transaction. The short ways were tried, and did not settle it.
    pub(super) is_long: bool,
    /// The latest time at which it may begin. Not by the runtime's clock, which a test may pause.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Ticket {
    pub(super) fn answer(self, mut answer: Result<Answer, StoreError>) {
        // The short way may have completed some of a batch.
        if let (Err(error), Op::Apply(Request::Complete(_)), true) = (&answer, &self.asked.op, self.is_long)
            && error.is_transient()
            && !error.is_outcome_unknown()
        {
            answer = Err(StoreError::outcome_unknown(error.to_string()));
        }
        // The caller may have gone.
        let _ = self.reply.send(answer);
    }
}

/// The answers to a batch, in its order. `None` where the batch had read as much as it may: repeat the operation.
pub(super) type Answers = Vec<Option<Result<Answer, StoreError>>>;
