//! One worker: a connection of its own, and one topic at a time.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::super::handle::Outbox;
use super::super::link::{Link, column, statement};
use super::super::publisher::Publisher;
use super::super::report;
use super::Settings;
use super::settled::Waits;
use super::turn::{Topic, Turn};
use crate::error::StoreError;
use crate::protocol::Owner;

/// The shortest time between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Worker<'r, P> {
    pub(super) outbox: &'r Outbox,
    pub(super) publisher: &'r P,
    pub(super) settings: &'r Settings,
    pub(super) waits: &'r Waits,
    pub(super) link: Link,
    /// Nobody else's: so a topic whose release was not heard of can be had again at once.
    pub(super) owner: Owner,
    /// What was published and is yet to be noted.
    pub(super) published: Vec<i64>,
    ring: &'r Notify,
    failures: u32,
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl<'r, P: Publisher> Worker<'r, P> {
    pub(super) fn new(
        outbox: &'r Outbox,
        publisher: &'r P,
        settings: &'r Settings,
        ring: &'r Notify,
        waits: &'r Waits,
    ) -> Self {
        let link = Link::new(&outbox.0.opening);
        let owner = Owner::random();
        Self { outbox, publisher, settings, waits, link, owner, published: Vec::new(), ring, failures: 0 }
    }

    /// Publishes until it is told to stop.
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
                    // What cannot be done now may be in a while, a missing right or table included.
                    Some(self.settings.pause(self.failures))
                }
            };
            if let Some(pause) = pause {
                let (rung, changed) = (pin!(self.ring.notified()), pin!(stopped.changed()));
                let _ = timeout(pause.max(SHORTEST_PAUSE), select(rung, changed)).await;
            }
        }
        // What fails now is done again by another.
        let _ = self.note().await;
        self.link.close().await;
    }

    /// Serves the topic that has waited longest, or says for how long there is none.
    async fn round(&mut self, stopped: &watch::Receiver<bool>) -> Result<Option<Duration>, StoreError> {
        self.note().await?;
        let Some(topic) = self.claim().await? else { return self.look().await };
        // There may be one for another worker.
        self.ring.notify_one();
        Turn::new(self, topic).serve(stopped).await?;
        Ok(None)
    }

    async fn claim(&self) -> Result<Option<Topic>, StoreError> {
        let since = tokio::time::Instant::now();
        let lease = self.settings.lease;
        let rows = self
            .link
            .ask(|| {
                let claim = statement(&self.outbox.0.statements.claim);
                claim.bind(self.owner.as_bytes().as_slice()).bind(micros(lease))
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let name: String = column(row, 0)?;
        let taken_over: bool = column(row, 1)?;
        if taken_over {
            report::taken_over(&name);
        }
        let failures = u32::try_from(column::<i32>(row, 2)?).unwrap_or(0);
        Ok(Some(Topic { name: name.into(), until: since + lease, failures, taken_over }))
    }

    /// Makes topics that are new; else says for how long there is nothing to do, unless something wakes.
    async fn look(&self) -> Result<Option<Duration>, StoreError> {
        let rows = self.link.ask(|| statement(&self.outbox.0.statements.look)).await?;
        let Some(row) = rows.first() else { return Ok(Some(self.settings.poll_interval)) };
        if column::<i64>(row, 0)? > 0 {
            return Ok(None);
        }
        let due = column::<Option<i64>>(row, 1)?
            .map_or(Duration::MAX, |due| Duration::from_micros(u64::try_from(due).unwrap_or(0)));
        Ok(Some(due.min(self.settings.poll_interval)))
    }

    /// Notes what was published.
    pub(super) async fn note(&mut self) -> Result<(), StoreError> {
        if self.published.is_empty() {
            return Ok(());
        }
        let (statements, keep) = (&self.outbox.0.statements, self.settings.keep);
        self.link
            .ask(|| match keep.is_zero() {
                true => statement(&statements.delete).bind(self.published.clone()),
                false => statement(&statements.keep).bind(self.published.clone()).bind(micros(keep)),
            })
            .await?;
        self.published.clear();
        Ok(())
    }
}
