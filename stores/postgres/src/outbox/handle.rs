//! `Outbox`: what the service that enqueues holds.

use std::fmt;
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

use super::error::OutboxError;
use super::layout::Names;
use super::message::{MessageId, check_topic};
use super::statements::Statements;
use crate::db::connector::Connector;
use crate::db::failure::{self, Failure};
use crate::db::session::statement;
use idem_core::StoreError;
use idem_core::transaction::Carries;

/// Messages in a table of a PostgreSQL database, version 12 or later, on their way out of it.
///
/// [`enqueue`](Self::enqueue) writes a message in the caller's transaction, a [`Relay`](super::Relay) publishes it after
/// the commit. The tables are made when the first process connects (`idem_outbox`, and `idem_outbox_topics` and
/// `idem_outbox_meta` beside it); `idem_outbox_readable` is a view of it for people.
///
/// A handle is cheap to clone. It holds no connection: messages go through the caller's, and an operator's
/// statement opens one for itself.
#[derive(Clone)]
pub struct Outbox(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) names: Names,
    pub(super) statements: Statements,
    pub(super) place: String,
    pub(super) max_payload_bytes: usize,
}

impl Outbox {
    /// Writes a message in the transaction that `tx` carries, under a new id, and gives the id.
    ///
    /// `tx` is a `&mut` of a connection or transaction, or of anything that gives one out mutably. Once the caller
    /// commits, the message will be published; if the caller rolls back, it never was. Within a body with
    /// `transaction = tx`, that is so for a body that fails, too.
    ///
    /// In one topic, messages are published in the order in which they were enqueued: of two transactions that
    /// overlap, in the order of their calls here, and of two that do not, in the order of the transactions. So
    /// enqueue after the writes that the message is about. Until a transaction ends, later messages of its
    /// topics wait for it; their transactions do not.
    ///
    /// # Errors
    ///
    /// [`OutboxError::NoTransaction`], [`InvalidTopic`](OutboxError::InvalidTopic) (not 1 to 200 bytes, or with control
    /// characters) and [`TooLarge`](OutboxError::TooLarge), after which the transaction is as before; and
    /// [`Database`](OutboxError::Database), after which it cannot be committed.
    pub async fn enqueue<C, V>(
        &self,
        tx: &mut C,
        topic: &str,
        payload: impl AsRef<[u8]>,
    ) -> Result<MessageId, OutboxError>
    where
        C: Carries<PgConnection, V>,
    {
        let id = MessageId::random();
        self.insert(tx.connection(), &id, topic, payload.as_ref()).await?;
        Ok(id)
    }

    /// As [`enqueue`](Self::enqueue), under an id of the caller's: whether it is new. While a message with this id is
    /// in the table, pending, set aside or kept, nothing is written, whatever topic and payload are.
    ///
    /// An id that stays the same when the work is done again, such as `Context::downstream_key`, makes the message of a
    /// call without `transaction = tx` one message, too.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_as<C, V>(
        &self,
        tx: &mut C,
        id: &MessageId,
        topic: &str,
        payload: impl AsRef<[u8]>,
    ) -> Result<bool, OutboxError>
    where
        C: Carries<PgConnection, V>,
    {
        self.insert(tx.connection(), id, topic, payload.as_ref()).await
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        id: &MessageId,
        topic: &str,
        payload: &[u8],
    ) -> Result<bool, OutboxError> {
        check_topic(topic)?;
        let limit = self.0.max_payload_bytes;
        if payload.len() > limit {
            return Err(OutboxError::TooLarge { size: payload.len(), limit });
        }
        if !connection.is_in_transaction() {
            return Err(OutboxError::NoTransaction);
        }
        let query = statement(&self.0.statements.enqueue)
            .bind(self.0.names.lock_number(topic))
            .bind(id.as_str())
            .bind(topic)
            .bind(payload);
        let rows = connection.fetch_all(query).await.map_err(|error| failed(&error))?;
        Ok(!rows.is_empty())
    }
}

fn failed(error: &sqlx::Error) -> StoreError {
    match failure::of_statement(error) {
        // A transaction goes with its connection, so what was sent in it was not applied.
        Failure::Broken(error) => StoreError::unavailable(error.to_string()),
        Failure::Refused(error) | Failure::ReadOnly(error) => error,
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&self.0.place).finish()
    }
}
