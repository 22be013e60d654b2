//! The store's operations, their answers, and a ticket for each that waits.
//!
//! It knows no connection and no SQL.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use idem_core::protocol::{self, Apply as _, Claim, Grant, Record, Request, StoredResult, Timestamp};
use idem_core::{RecordKey, StoreError};

/// What is asked.
#[derive(Debug)]
pub(super) enum Op {
    Apply(Request),
    /// As the claim, but nothing is written: for a transaction of a caller's.
    Look(Claim),
    Forget,
    Get,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Applied(protocol::Answer),
    Seen(Box<Seen>),
    Forgotten(bool),
    Found(Option<Box<Record>>),
}

/// What a claim would be granted.
#[derive(Debug)]
pub(super) struct Seen {
    /// The record that there is. In the place of its steps there are blanks.
    pub(super) old: Option<Record>,
    /// The record that the claim would write.
    pub(super) new: Record,
    pub(super) grant: Grant,
    pub(super) now: Timestamp,
}

/// What is asked, of which key.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) key: RecordKey,
    pub(super) op: Op,
}

impl Operation {
    pub(super) const fn is_read(&self) -> bool {
        matches!(self.op, Op::Get)
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
    /// Until when it may be begun. Not the runtime's clock, which a test may have stopped.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Ticket {
    pub(super) fn answer(self, answer: Result<Answer, StoreError>) {
        // Nobody may be waiting any more.
        let _ = self.reply.send(answer);
    }
}

/// The answers to a batch, in its order. Nothing where as much was read as a batch may hold: ask again.
pub(super) type Answers = Vec<Option<Result<Answer, StoreError>>>;
