//! `Outbox`: the handle through which a service enqueues.

use std::fmt;
use std::sync::Arc;

use super::error::OutboxError;
use super::layout::Names;
use super::message::{MessageId, check_topic};
use idem_core::transaction::Carries;
use idem_postgres::PostgresStore;
use idem_postgres::db::connector::Connector;
use idem_postgres::driver::{DriverTransaction, Parameter, Query};

/// The largest payload, in bytes.
const MAX_PAYLOAD_BYTES: usize = 16 * 1024 * 1024;

/// An outbox: a table of messages in a PostgreSQL database, version 12 or later.
///
/// [`enqueue`](Self::enqueue) writes a message in the caller's transaction, and a [`Relay`](super::Relay)
/// publishes it after the commit. The first process that connects creates the tables `idem_outbox`,
/// `idem_outbox_topics` and `idem_outbox_meta`, and the view `idem_outbox_readable`, which people can read.
///
/// A handle is cheap to clone. It holds no connection: `enqueue` uses the caller's connection, and each
/// method for operators opens a new one.
#[derive(Clone)]
pub struct Outbox(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) names: Names,
    /// The statement that enqueues.
    pub(super) enqueue: String,
    pub(super) place: String,
}

impl Outbox {
    /// Writes a message under a new id in the transaction of `tx`, and returns the id.
    ///
    /// `tx` is a `&mut` of a transaction of any [driver](idem_postgres::driver), or of a value that
    /// dereferences mutably to such a transaction. If the caller commits, a relay publishes the message; if
    /// the caller rolls back, the message does not exist. If a body with `transaction = tx` fails, its
    /// messages do not exist either.
    ///
    /// In one topic, messages are published in the order of the calls of `enqueue`, even if the calls are in
    /// different transactions. So call `enqueue` after the writes that the message is about. If two
    /// transactions change the same row, the order of their messages is then the order of their changes.
    ///
    /// If other open transactions have enqueued into the same topic, a relay does not publish the message at
    /// once. When the relay first sees the message, it notes these transactions, and waits until all of them
    /// have ended. The message's own transaction does not wait for them.
    ///
    /// # Errors
    ///
    /// [`OutboxError::NoTransaction`], [`InvalidTopic`](OutboxError::InvalidTopic) (not 1 to 200 bytes, or
    /// with control characters) and [`TooLarge`](OutboxError::TooLarge) (more than 16 MiB). These errors
    /// leave the transaction unchanged. After [`Database`](OutboxError::Database), the transaction cannot be
    /// committed.
    pub async fn enqueue<C, V>(
        &self,
        tx: &mut C,
        topic: &str,
        payload: impl AsRef<[u8]>,
    ) -> Result<MessageId, OutboxError>
    where
        C: Carries<PostgresStore, V, Connection: DriverTransaction>,
    {
        let id = MessageId::random();
        self.enqueue_as(tx, &id, topic, payload).await?;
        Ok(id)
    }

    /// As [`enqueue`](Self::enqueue), under the caller's id. Returns whether the id is new. While a message
    /// with this id is in the table (pending, set aside or kept), nothing is written, even for another topic
    /// or payload.
    ///
    /// An id that is the same at each attempt, such as `Context::downstream_key`, gives one message for all
    /// attempts of a call, also without `transaction = tx`. For this, the relays must keep published messages
    /// long enough ([`keep_published`](super::Relay::keep_published)).
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
        C: Carries<PostgresStore, V, Connection: DriverTransaction>,
    {
        let (tx, payload) = (tx.connection(), payload.as_ref());
        check_topic(topic)?;
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(OutboxError::TooLarge { size: payload.len(), limit: MAX_PAYLOAD_BYTES });
        }
        if !tx.is_open() {
            return Err(OutboxError::NoTransaction);
        }
        let parameters = [
            Parameter::BigInt(Some(self.0.names.lock_number(topic))),
            Parameter::Text(id.as_str()),
            Parameter::Text(topic),
            Parameter::Bytes(Some(payload)),
        ];
        let query = Query::new(&self.0.enqueue, &parameters, self.0.connector.opener.is_shared());
        Ok(!tx.query(query).await?.is_empty())
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&self.0.place).finish()
    }
}
