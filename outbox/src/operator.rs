//! The operations for operators, and the purge.

use std::time::{Duration, SystemTime};

use sqlx::postgres::PgRow;

use super::error::OutboxError;
use super::handle::Outbox;
use super::link::Link;
use super::message::MessageId;
use idem_core::StoreError;
use idem_postgres::db::session::{Session, Statement, column};
use idem_store_kit::group_commit::Failure;

/// How many messages one statement deletes. Few, so that the statement takes a short time.
const PURGE_BATCH: usize = 2_000;

/// How long a topic without pending messages must be unused before its row is deleted.
const IDLE_TOPIC: Duration = Duration::from_secs(60 * 60);

/// The numbers of messages and of blocked topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Messages that are still to be published.
    pub pending: u64,
    /// Messages that were set aside.
    pub set_aside: u64,
    /// Messages that were published and are kept.
    pub published: u64,
    /// Topics that wait for a message that was set aside.
    pub blocked_topics: u64,
    /// How long ago the oldest pending message was enqueued.
    pub oldest_pending: Option<Duration>,
}

/// A message that a relay has set aside: no relay publishes it, unless [`Outbox::retry`] makes it pending
/// again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SetAside {
    /// The message's id, for [`Outbox::retry`] and [`Outbox::discard`].
    pub id: MessageId,
    /// The message's topic.
    pub topic: String,
    /// The message's number, which events show.
    pub sequence: i64,
    /// The size of the payload in bytes.
    pub payload_bytes: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// The publisher's last error.
    pub error: Option<String>,
    /// The time when the message was set aside, by the server's clock.
    pub since: SystemTime,
    /// Whether later messages of the topic wait for this message.
    pub blocks: bool,
}

fn unsigned(row: &PgRow, index: usize) -> Result<u64, StoreError> {
    let number: i64 = column(row, index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

impl SetAside {
    fn read(row: &PgRow) -> Result<Self, StoreError> {
        Ok(Self {
            sequence: column(row, 0)?,
            id: MessageId::stored(column(row, 1)?),
            topic: column(row, 2)?,
            payload_bytes: u64::try_from(column::<i32>(row, 3)?).unwrap_or(0),
            attempts: u32::try_from(column::<i32>(row, 4)?).unwrap_or(0),
            error: column(row, 5)?,
            since: SystemTime::UNIX_EPOCH + Duration::from_micros(unsigned(row, 6)?),
            blocks: column(row, 7)?,
        })
    }
}

impl Outbox {
    /// Counts the messages: pending, set aside and kept. Reads the whole table.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Database`].
    pub async fn counts(&self) -> Result<Counts, OutboxError> {
        let rows = self.run(false, || self.0.names.counts()).await?;
        let Some(row) = rows.first() else { return Ok(Counts::default()) };
        let oldest: Option<i64> = column(row, 3)?;
        Ok(Counts {
            pending: unsigned(row, 0)?,
            set_aside: unsigned(row, 1)?,
            published: unsigned(row, 2)?,
            oldest_pending: oldest.map(|age| Duration::from_micros(u64::try_from(age).unwrap_or(0))),
            blocked_topics: unsigned(row, 4)?,
        })
    }

    /// The messages that were set aside, at most `limit`, in the order in which they were enqueued.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Database`].
    pub async fn set_aside(&self, limit: usize) -> Result<Vec<SetAside>, OutboxError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.run(false, || self.0.names.list().bind(limit)).await?;
        Ok(rows.iter().map(SetAside::read).collect::<Result<_, _>>()?)
    }

    /// Makes a message that was set aside pending again. It gets all its attempts again, and comes before the
    /// later messages of its topic that still wait. Returns whether the message was set aside.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Database`].
    pub async fn retry(&self, id: &MessageId) -> Result<bool, OutboxError> {
        let rows = self.run(true, || self.0.names.retry().bind(id.to_string())).await?;
        Ok(!rows.is_empty())
    }

    /// Deletes a message that was set aside, so that it is never published. Returns whether the message was
    /// set aside.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Database`].
    pub async fn discard(&self, id: &MessageId) -> Result<bool, OutboxError> {
        let rows = self.run(true, || self.0.names.discard().bind(id.to_string())).await?;
        Ok(!rows.is_empty())
    }

    /// Deletes published messages that have been kept long enough, at most `limit`, and returns how many it
    /// deleted. Also deletes the rows of topics that have no pending message, are not blocked, and were not
    /// served for an hour. Call it from a periodic task; any number of processes may call it at once.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Database`]. An error after the first 2,000 messages ends the purge, but is not
    /// returned. If the error lasts, the next purge returns it.
    pub async fn purge(&self, limit: usize) -> Result<usize, OutboxError> {
        let idle = i64::try_from(IDLE_TOPIC.as_micros()).unwrap_or(i64::MAX);
        self.run(false, || self.0.names.purge_topics().bind(idle)).await?;
        let batch = |mut session: Session, most: usize| {
            let purge = self.0.names.purge().bind(i64::try_from(most).unwrap_or(i64::MAX));
            async move {
                let deleted = session.fetch_all(purge).await.and_then(|rows| {
                    let deleted = rows.first().map_or(Ok(0), |row| unsigned(row, 0));
                    deleted.map_err(Failure::Refused)
                });
                let count = deleted.map(|deleted| usize::try_from(deleted).unwrap_or(usize::MAX));
                (count.map(|count| (count, count)), session)
            }
        };
        Ok(self.0.connector.purge(limit, PURGE_BATCH, batch).await?)
    }

    /// Runs one statement on a separate connection. A statement that changes a message is not repeated if its
    /// answer was lost, because the repetition would find nothing to change.
    async fn run(&self, changes: bool, asked: impl Fn() -> Statement) -> Result<Vec<PgRow>, OutboxError> {
        let link = Link::new(&self.0.connector);
        let rows = if changes { link.ask_once(asked).await } else { link.ask(asked).await };
        link.close().await;
        Ok(rows?)
    }
}
