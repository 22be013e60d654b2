//! What a store provides about its server.

use std::time::Duration;

use idem_core::StoreError;

use super::backlog::Kind;
use super::operation::{Answer, Answers, Operation, Ticket};

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Another transaction was first, or has a lock on a row. Nothing was applied, and another attempt may
    /// succeed at once.
    Raced(StoreError),
    /// The server refused the operation. Nothing was applied, and the session can be used again.
    Refused(StoreError),
    /// The server takes no writes. Nothing was applied.
    ReadOnly(StoreError),
    /// A table is absent. Nothing was applied.
    Absent(StoreError),
    /// The session cannot be used any more. The error says whether anything may have been applied.
    Broken(StoreError),
}

impl Failure {
    /// The failure of a server that did not answer within this time, so nobody knows what it did.
    #[must_use]
    pub fn late(time: Duration) -> Self {
        Self::Broken(StoreError::outcome_unknown(format!("the server did not answer within {time:?}")))
    }

    /// The error for the caller.
    #[must_use]
    pub fn error(self) -> StoreError {
        match self {
            Self::Raced(error)
            | Self::Refused(error)
            | Self::ReadOnly(error)
            | Self::Absent(error)
            | Self::Broken(error) => error,
        }
    }
}

/// The server of a store, and what it can do with the operations of a batch.
pub trait Server: Send + Sync + 'static {
    /// A connection. It lives in the runtime in which it was opened.
    type Session: Send + 'static;

    /// The kinds of operations, each with the rules for when its operations start.
    const KINDS: &'static [Kind];

    /// How many batches of changes may run at a time when there are many operations. If only one may run, the
    /// next batch collects all other operations while the running batch waits for the disk.
    const CHANGES_ABREAST: usize = 1;

    /// Whether the stores' own runtime repeats the operations that a batch in a caller's runtime left without
    /// an answer. Set this if a batch may hold locks between two exchanges. A caller that blocks its thread
    /// would otherwise keep other processes waiting for these locks.
    const REPEATS_APART: bool = false;

    /// The index of an operation's kind in [`KINDS`](Self::KINDS).
    fn kind(operation: &Operation) -> usize;

    /// Whether an operation runs in its caller's runtime, if the caller has one.
    fn is_run_by_callers(operation: &Operation) -> bool {
        operation.is_only_for_its_caller()
    }

    /// About how many bytes an operation adds to a batch.
    fn weight(operation: &Operation) -> usize;

    /// The largest batch, in bytes.
    fn most_bytes(&self) -> usize;

    /// The largest number of sessions in each runtime.
    fn connections(&self) -> usize;

    /// How long an operation may wait for a session, and how long an attempt may take.
    fn timeout(&self) -> Duration;

    /// Opens a session.
    fn open(&self) -> impl Future<Output = Result<Self::Session, StoreError>> + Send;

    /// Returns the session if it is not broken, not too old, and leads to the right server. Otherwise `None`.
    fn kept(&self, session: Self::Session) -> impl Future<Output = Option<Self::Session>> + Send;

    /// Closes a session.
    fn close(&self, session: Self::Session) -> impl Future<Output = ()> + Send + 'static;

    /// The server's name for this session. A store returns a name if its server continues a statement, and
    /// keeps the session, after the client is gone; otherwise `None`. If there is a name, an attempt that
    /// takes too long is not dropped. The attempt continues and counts as a session until it ends, or until
    /// [`at_work`](Self::at_work) no longer returns this name.
    fn name(&self, session: &Self::Session) -> Option<String> {
        let _ = session;
        None
    }

    /// Filters `names`: returns the names of the sessions on which the server still works.
    fn at_work(
        &self,
        session: &mut Self::Session,
        names: &[String],
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send {
        let _ = (session, names);
        std::future::ready(Ok(Vec::new()))
    }

    /// Runs the operations of one batch once. `is_own` is `true` in the stores' own runtime.
    ///
    /// An operation without an answer is repeated.
    fn attempt(
        &self,
        session: &mut Self::Session,
        kind: usize,
        tickets: &[Ticket],
        is_own: bool,
    ) -> impl Future<Output = Result<Answers, Failure>> + Send;

    /// Returns the answer to an operation that failed when it ran alone. This method need not use the
    /// session.
    fn conclude(
        &self,
        session: &mut Option<Self::Session>,
        operation: &Operation,
        failure: Failure,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        let _ = (session, operation);
        std::future::ready(Err(failure.error()))
    }
}
