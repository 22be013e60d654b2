//! One turn of a topic: publishes its messages in order, records them as published, and releases the topic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use sqlx::postgres::PgRow;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::super::settings::OnPoison;
use super::super::settled::{Bound, Settled, settled};
use super::{Worker, micros};
use crate::message::{Message, MessageId};
use crate::publisher::{PublishErrorKind, Publisher};
use crate::report;
use idem_core::StoreError;
use idem_postgres::db::session::column;

/// After this time, the turn of a topic begins no further batch, so that the worker serves the next topic.
const TURN: Duration = Duration::from_secs(1);

/// The limit of a batch's payloads after its first message, in bytes. It keeps the read of a batch within the
/// operation timeout.
const BATCH_BYTES: i64 = 4 * 1024 * 1024;

/// If the topic's previous relay died, this error is stored with a message before the publisher is called. If
/// this relay dies, too, the error stays with the message.
const WENT_AWAY: &str = "a relay died while it published this message, or one just before or after it";

/// A topic that a worker has claimed.
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// The end of the lease, by this process's clock.
    pub(super) until: Instant,
    /// How many times in a row the topic failed.
    pub(super) failures: u32,
    /// Whether the topic was taken over from a relay that died.
    pub(super) taken_over: bool,
}

/// A message, and its age when it was read.
struct Due {
    message: Message,
    attempts: i32,
    age: Duration,
}

/// How a batch ended.
enum Batch {
    /// All messages were published or set aside.
    Done,
    /// The topic must pause.
    Failed,
    /// This worker may have lost the topic, a message blocks the topic, or the relay stops.
    Over,
}

pub(super) struct Turn<'w, 'r, P> {
    worker: &'w mut Worker<'r, P>,
    topic: Topic,
    /// For this many more messages, the attempt is recorded before the publisher is called, because one of
    /// these messages may have crashed the previous relay.
    careful: usize,
}

impl<'w, 'r, P: Publisher> Turn<'w, 'r, P> {
    pub(super) const fn new(worker: &'w mut Worker<'r, P>, topic: Topic) -> Self {
        let careful = if topic.taken_over { worker.relay.settings.batch } else { 0 };
        Self { worker, topic, careful }
    }

    /// Publishes the topic's messages, batch by batch. Begins no batch after `TURN`.
    pub(super) async fn serve(mut self, stopped: &watch::Receiver<bool>) -> Result<(), StoreError> {
        let begin = Instant::now();
        while !*stopped.borrow() && begin.elapsed() < TURN {
            if !self.holds().await? {
                return Ok(());
            }
            let (outbox, name) = (&self.worker.relay.outbox.0, &self.topic.name);
            let bound = match settled(outbox, &self.worker.link, self.worker.waits, name).await? {
                Settled::UpTo(bound) => bound,
                Settled::Nothing => break,
                Settled::Open(transactions, pause) => {
                    report::held_back(name, transactions);
                    return self.release(pause).await;
                }
            };
            let due = self.fetch(bound).await?;
            if due.last().is_none_or(|due| due.message.sequence >= bound.sequence) {
                self.worker.waits.forget(name);
            }
            let published = self.publish(due, stopped).await;
            self.worker.note().await?;
            match published? {
                Batch::Done => {}
                Batch::Failed => {
                    self.topic.failures = self.topic.failures.saturating_add(1);
                    let pause = self.worker.relay.settings.pause(self.topic.failures);
                    return self.release(pause).await;
                }
                Batch::Over => break,
            }
        }
        self.release(Duration::ZERO).await
    }

    /// Renews the lease if it may end before the next call of the publisher ends. Returns whether this worker
    /// has the topic until that call ends.
    async fn holds(&mut self) -> Result<bool, StoreError> {
        let settings = &self.worker.relay.settings;
        if self.topic.until.saturating_duration_since(Instant::now()) > settings.publish_timeout {
            return Ok(true);
        }
        let (worker, name) = (&self.worker, &self.topic.name);
        let since = Instant::now();
        let rows = worker
            .link
            .ask(|| {
                let renew = worker.relay.outbox.0.names.renew().bind(name.to_string());
                renew.bind(worker.owner.as_bytes().to_vec()).bind(micros(settings.lease()))
            })
            .await?;
        self.topic.until = since + settings.lease();
        let left = self.topic.until.saturating_duration_since(Instant::now());
        Ok(!rows.is_empty() && left > settings.publish_timeout)
    }

    /// The next batch of messages up to this bound; empty if the server was restarted.
    async fn fetch(&self, bound: Bound) -> Result<Vec<Due>, StoreError> {
        let (worker, name) = (&self.worker, &self.topic.name);
        let batch = i64::try_from(worker.relay.settings.batch).unwrap_or(i64::MAX);
        let ask = || {
            let fetch = worker.relay.outbox.0.names.fetch().bind(name.to_string()).bind(bound.sequence);
            fetch.bind(batch).bind(bound.started).bind(BATCH_BYTES)
        };
        let rows = worker.link.ask(ask).await?;
        rows.iter().map(|row| self.read(row)).collect()
    }

    fn read(&self, row: &PgRow) -> Result<Due, StoreError> {
        let attempts: i32 = column(row, 3)?;
        let message = Message {
            id: MessageId::stored(column(row, 1)?),
            topic: self.topic.name.clone(),
            payload: Bytes::copy_from_slice(column(row, 2)?),
            sequence: column(row, 0)?,
            attempt: u32::try_from(attempts).unwrap_or(0).saturating_add(1),
        };
        let age = Duration::from_micros(u64::try_from(column::<i64>(row, 4)?).unwrap_or(0));
        Ok(Due { message, attempts, age })
    }

    async fn publish(
        &mut self,
        batch: Vec<Due>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Batch, StoreError> {
        let read = Instant::now();
        for Due { message, attempts, age } in batch {
            if *stopped.borrow() || !self.holds().await? {
                return Ok(Batch::Over);
            }
            let careful = self.careful > 0;
            if careful {
                self.careful -= 1;
                if self.used_up(attempts) {
                    if self.set_aside(&message, attempts, None).await? {
                        return Ok(Batch::Over);
                    }
                    continue;
                }
                self.count(&message, attempts, attempts + 1, Some(WENT_AWAY)).await?;
            }
            let counted = if careful { attempts + 1 } else { attempts };
            let Err((kind, text)) = self.call(&message).await else {
                report::published(&message);
                report::was_on_its_way(age + read.elapsed());
                self.worker.published.push((message.sequence, message.id.clone()));
                self.topic.failures = 0;
                if careful {
                    // Records this message before the next one is published, because the next one may crash
                    // this relay, too.
                    self.worker.note().await?;
                }
                continue;
            };
            let aside = match kind {
                PublishErrorKind::Unavailable => {
                    self.count(&message, counted, attempts, Some(&text)).await?;
                    return Ok(Batch::Failed);
                }
                PublishErrorKind::Failed => self.used_up(attempts + 1),
                PublishErrorKind::Poison => true,
            };
            if !aside {
                self.count(&message, counted, attempts + 1, Some(&text)).await?;
                return Ok(Batch::Failed);
            }
            if self.set_aside(&message, attempts + 1, Some(text)).await? {
                return Ok(Batch::Over);
            }
        }
        Ok(Batch::Done)
    }

    fn used_up(&self, attempts: i32) -> bool {
        u32::try_from(attempts).unwrap_or(0) >= self.worker.relay.settings.max_attempts
    }

    /// Calls the publisher. Returns the kind of a failure, and the text to store.
    async fn call(&self, message: &Message) -> Result<(), (PublishErrorKind, String)> {
        let begin = Instant::now();
        let limit = self.worker.relay.settings.publish_timeout;
        let calling = async {
            let published = self.worker.relay.publisher.publish(message).await;
            published.map_err(|error| (error.kind(), error.text()))
        };
        let called = timeout(limit, AssertUnwindSafe(calling).catch_unwind()).await;
        report::publish_took(begin.elapsed());
        let (cause, kind, text) = match called {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err((kind, text)))) => (format!("{kind:?}"), kind, text),
            Ok(Err(_)) => ("panic".to_owned(), PublishErrorKind::Failed, "the publisher panicked".to_owned()),
            // A timeout does not show that the message is at fault, so it does not count as an attempt. The
            // message may still arrive.
            Err(_) => (
                "timeout".to_owned(),
                PublishErrorKind::Unavailable,
                format!("the publisher took longer than {limit:?}"),
            ),
        };
        report::publish_failed(message, &cause);
        Err((kind, text))
    }

    /// Records the number of attempts of a message, and its last error, if the recorded number is still
    /// `before`.
    async fn count(
        &self,
        message: &Message,
        before: i32,
        after: i32,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        let (sequence, id) = (message.sequence, &message.id);
        let note = || self.worker.relay.outbox.0.names.note().bind(sequence).bind(before).bind(after);
        let ask = || note().bind(error.map(str::to_owned)).bind(id.to_string());
        self.worker.link.ask(ask).await.map(drop)
    }

    /// Sets a message aside. Returns whether it blocks the topic.
    async fn set_aside(
        &mut self,
        message: &Message,
        attempts: i32,
        error: Option<String>,
    ) -> Result<bool, StoreError> {
        // Records the earlier messages first, so that this message is the only one without a recorded
        // outcome.
        self.worker.note().await?;
        let blocks = self.worker.relay.settings.on_poison == OnPoison::Block;
        let (sequence, id) = (message.sequence, &message.id);
        let aside = || self.worker.relay.outbox.0.names.set_aside().bind(sequence).bind(attempts);
        self.worker.link.ask(|| aside().bind(error.clone()).bind(blocks).bind(id.to_string())).await?;
        report::set_aside(message);
        Ok(blocks)
    }

    /// Releases the topic. Until the pause is over, no relay claims it.
    async fn release(self, pause: Duration) -> Result<(), StoreError> {
        let (worker, topic) = (&self.worker, &self.topic);
        let failures = i32::try_from(topic.failures).unwrap_or(i32::MAX);
        let ask = || {
            let release = worker.relay.outbox.0.names.release().bind(topic.name.to_string());
            release.bind(worker.owner.as_bytes().to_vec()).bind(micros(pause)).bind(failures)
        };
        worker.link.ask(ask).await.map(drop)
    }
}
