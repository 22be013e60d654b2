//! The store's operations, their answers, and a ticket for each that waits.
//!
//! Knows nothing of connections and SQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    pub(super) fn on(key: &RecordKey, op: Op) -> Arc<Self> {
        Arc::new(Self { key: key.clone(), op })
    }

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
    /// Whether a statement for several has done some of them, perhaps this one.
    pub(super) may_be_done: AtomicBool,
    /// The latest time at which it may begin. Not by the runtime's clock, which a test may pause.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Ticket {
    pub(super) fn answer(self, mut answer: Result<Answer, StoreError>) {
        if let Err(error) = &answer
            && self.may_be_done.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use idem_core::{Key, Scope};

    use super::*;

    #[test]
    fn what_may_be_done_is_not_said_to_be_undone() {
        for may_be_done in [false, true] {
            let key = RecordKey::new(Scope::new("orders").unwrap(), Key::new("1").unwrap());
            let (reply, mut answered) = oneshot::channel();
            let ticket = Ticket {
                asked: Arc::new(Operation { key, op: Op::Get }),
                is_long: true,
                may_be_done: AtomicBool::new(may_be_done),
                deadline: Instant::now(),
                reply,
            };
            ticket.answer(Err(StoreError::unavailable("the server is away")));
            let error = answered.try_recv().unwrap().unwrap_err();
            assert_eq!(error.is_outcome_unknown(), may_be_done, "{error}");
        }
    }
}
