//! One worker. It has its own connection, and serves one topic at a time.

mod turn;

use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use self::turn::{Topic, Turn};
use super::super::link::Link;
use super::super::message::MessageId;
use super::super::publisher::Publisher;
use super::super::report;
use super::Relay;
use super::settled::Waits;
use idem_core::StoreError;
use idem_core::protocol::Owner;
use idem_postgres::db::session::column;

/// The shortest pause between two reads of the outbox.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// How many topics a claim reads first, and the factor by which this number grows each time.
const FEW_TOPICS: i32 = 64;
const MORE_TOPICS: i32 = 8;

/// The answer to one claim statement.
#[derive(Default)]
struct Window {
    topic: Option<Topic>,
    /// The topic after which to continue; `None` after the last topic.
    last: Option<String>,
    made: i64,
}

pub(super) struct Worker<'r, P> {
    pub(super) relay: &'r Relay<P>,
    pub(super) waits: &'r Waits,
    pub(super) link: Link,
    /// Unique to this worker. If a release fails, the topic still has this owner, so this worker can claim
    /// the topic again at once.
    pub(super) owner: Owner,
    /// Messages that were published and are not recorded as such yet.
    pub(super) published: Vec<(i64, MessageId)>,
    /// The last topic that a claim read; empty if the next claim begins with the first topic.
    looked_at: String,
    ring: &'r Notify,
    failures: u32,
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl<'r, P: Publisher> Worker<'r, P> {
    pub(super) fn new(relay: &'r Relay<P>, ring: &'r Notify, waits: &'r Waits) -> Self {
        Self {
            relay,
            waits,
            link: Link::new(&relay.outbox.0.connector),
            owner: Owner::random(),
            published: Vec::new(),
            looked_at: String::new(),
            ring,
            failures: 0,
        }
    }

    /// Publishes until `stopped` is true.
    pub(super) async fn work(mut self, mut stopped: watch::Receiver<bool>) {
        while !*stopped.borrow() {
            let pause = match self.round(&stopped).await {
                Ok(pause) => {
                    self.failures = 0;
                    pause
                }
                Err(error) => {
                    report::relay_failed(&error);
                    self.failures = self.failures.saturating_add(1);
                    // Retries every error, even a missing permission or table, because a person may fix it.
                    Some(self.relay.settings.pause(self.failures))
                }
            };
            if let Some(pause) = pause {
                let (rung, changed) = (pin!(self.ring.notified()), pin!(stopped.changed()));
                let _ = timeout(pause.max(SHORTEST_PAUSE), select(rung, changed)).await;
            }
        }
        // If the published messages cannot be recorded, another relay publishes them again.
        let _ = self.note().await;
        self.link.close().await;
    }

    /// Serves the next topic. If no topic can be served now, returns how long to wait.
    async fn round(&mut self, stopped: &watch::Receiver<bool>) -> Result<Option<Duration>, StoreError> {
        self.note().await?;
        let Some(topic) = self.claim().await? else { return self.look().await.map(Some) };
        // Wakes another worker, because there may be a topic for it, too.
        self.ring.notify_one();
        Turn::new(self, topic).serve(stopped).await?;
        Ok(None)
    }

    /// Claims the next topic to serve. First reads only a few topics, after the topics that the previous
    /// claim read. If none of these can be claimed, reads more and more topics, until it has read all. So it
    /// finds a topic fast, even if very many topics have messages.
    async fn claim(&mut self) -> Result<Option<Topic>, StoreError> {
        let mut most = FEW_TOPICS;
        let mut from_the_first = self.looked_at.is_empty();
        loop {
            let Window { topic, last, made } = self.claim_after(most).await?;
            if topic.is_none() && made > 0 {
                // The rows of the new topics exist now, so the next statement can claim one of them.
                continue;
            }
            self.looked_at = last.unwrap_or_default();
            if topic.is_some() || self.looked_at.is_empty() && from_the_first {
                return Ok(topic);
            }
            from_the_first |= self.looked_at.is_empty();
            most = most.saturating_mul(MORE_TOPICS);
        }
    }

    async fn claim_after(&self, most: i32) -> Result<Window, StoreError> {
        let since = tokio::time::Instant::now();
        let lease = self.relay.settings.lease();
        let rows = self
            .link
            .ask(|| {
                let claim = self.relay.outbox.0.names.claim().bind(self.owner.as_bytes().to_vec());
                claim.bind(micros(lease)).bind(self.looked_at.clone()).bind(most)
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(Window::default()) };
        let window = Window { topic: None, last: column(row, 3)?, made: column(row, 4)? };
        let Some(name) = column::<Option<String>>(row, 0)? else { return Ok(window) };
        let taken_over: bool = column(row, 1)?;
        if taken_over {
            report::taken_over(&name);
        }
        let failures = u32::try_from(column::<i32>(row, 2)?).unwrap_or(0);
        let topic = Topic { name: name.into(), until: since + lease, failures, taken_over };
        Ok(Window { topic: Some(topic), ..window })
    }

    /// How long until a topic may be claimed, but at most the poll interval.
    async fn look(&self) -> Result<Duration, StoreError> {
        let rows = self.link.ask(|| self.relay.outbox.0.names.look()).await?;
        let due = rows.first().map_or(Ok(None), |row| column::<Option<i64>>(row, 0))?;
        let due = due.map_or(Duration::MAX, |due| Duration::from_micros(u64::try_from(due).unwrap_or(0)));
        Ok(due.min(self.relay.settings.poll_interval))
    }

    /// Records the published messages.
    pub(super) async fn note(&mut self) -> Result<(), StoreError> {
        if self.published.is_empty() {
            return Ok(());
        }
        let (names, keep) = (&self.relay.outbox.0.names, self.relay.settings.keep);
        let published = self.published.iter();
        let (numbers, ids): (Vec<i64>, Vec<String>) =
            published.map(|(number, id)| (*number, id.to_string())).unzip();
        self.link
            .ask(|| match keep.is_zero() {
                true => names.delete().bind(numbers.clone()).bind(ids.clone()),
                false => names.keep().bind(numbers.clone()).bind(ids.clone()).bind(micros(keep)),
            })
            .await?;
        self.published.clear();
        Ok(())
    }
}
