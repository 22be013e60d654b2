//! The facts about this store that the group commit needs: the kinds of its operations, and how a batch runs.

use std::time::Duration;

use idem_core::StoreError;
use idem_core::protocol::Request;
use idem_store_kit::group_commit::{
    Answer, Answers, Class, Failure, Keys, Kind, Op, Operation, Server, Ticket,
};
use idem_store_kit::sql::Session as _;

use crate::change::{self, Why};
use crate::db::failure;
use crate::db::session::Session;
use crate::reading::{self, Rest};
use crate::setting::Setting;

/// The largest batch, in operations.
const MOST: usize = 256;

const READS: usize = 0;
const COMPLETIONS: usize = 1;
const CHANGES: usize = 2;
const RENEWALS: usize = 3;

impl Server for Setting {
    type Session = Session;

    const KINDS: &'static [Kind] = &[
        Kind { class: Class::Reads, most: MOST, keys: Keys::Any, goes_first: false },
        Kind { class: Class::Changes, most: MOST, keys: Keys::OneBatch, goes_first: true },
        Kind { class: Class::Changes, most: MOST, keys: Keys::OneBatch, goes_first: false },
        Kind { class: Class::Renewals, most: MOST, keys: Keys::OneBatch, goes_first: false },
    ];
    const CHANGES_ABREAST: usize = 2;
    const REPEATS_APART: bool = true;

    fn kind(operation: &Operation) -> usize {
        match operation.op {
            Op::Get => READS,
            Op::Apply(Request::Complete(_)) => COMPLETIONS,
            Op::Apply(Request::Renew(_)) => RENEWALS,
            _ => CHANGES,
        }
    }

    fn is_run_by_callers(operation: &Operation) -> bool {
        matches!(operation.op, Op::Get | Op::Apply(Request::Claim(_) | Request::Complete(_)))
    }

    /// About how many bytes an operation adds to statements.
    fn weight(operation: &Operation) -> usize {
        let name = operation.key.scope().as_str().len() + operation.key.key().as_str().len();
        1_024 + 4 * name + 2 * operation.result_bytes()
    }

    fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn timeout(&self) -> Duration {
        self.connector.timeout()
    }

    async fn open(&self) -> Result<Session, StoreError> {
        self.connector.connect().await
    }

    async fn kept(&self, session: Session) -> Option<Session> {
        self.connector.kept(session).await
    }

    fn close(&self, session: Session) -> impl Future<Output = ()> + Send + 'static {
        session.close(self.connector.timeout())
    }

    async fn attempt(
        &self,
        session: &mut Session,
        kind: usize,
        tickets: &[Ticket],
        is_own: bool,
    ) -> Result<Answers, Failure> {
        if kind == READS {
            let operations: Vec<_> = tickets.iter().map(|ticket| &*ticket.operation).collect();
            return reading::get(session, self, &operations).await;
        }
        let done = if is_own {
            change::apply(session, self, tickets).await
        } else {
            change::at_once::run(session, self, tickets).await
        };
        // A new connection may lead to a server that takes writes.
        if !is_own && matches!(done, Err(Failure::ReadOnly(_))) {
            session.leave();
        }
        done
    }

    /// Answers an operation that could not write. If a read without a lock finds the answer, returns this
    /// answer, otherwise the error.
    async fn conclude(
        &self,
        session: &mut Option<Session>,
        operation: &Operation,
        failed: Failure,
    ) -> Result<Answer, StoreError> {
        let (error, why) = match failed {
            Failure::Raced(_) => (failure::locked(), Why::Locked),
            Failure::ReadOnly(error) => (error, Why::ReadOnly),
            other => return Err(other.error()),
        };
        let Some(open) = session else { return Err(error) };
        let answer = change::without_writing(open, self, &mut Rest::default(), operation, why).await;
        if why == Why::ReadOnly {
            open.leave();
        }
        answer.ok().flatten().unwrap_or(Err(error))
    }
}
