//! Finds out which messages may be published. A message may be published when no message with a lower number
//! can appear any more.
//!
//! A message gets its number when it is enqueued, and becomes visible when its transaction commits. So an
//! open transaction may hold a lower number than a visible message. But each transaction takes a shared lock
//! of its topic before it takes a number. This module first reads the number of the last visible message, and
//! then the holders of the lock. When all these holders have ended, every message up to that number is either
//! visible or will never become visible. Later transactions get higher numbers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::super::handle::Inner;
use super::super::layout::Names;
use super::super::link::Link;
use idem_core::StoreError;
use idem_postgres::db::session::column;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The highest number of topics that a relay remembers. Topics that other relays have emptied count, too.
const MOST_TOPICS: usize = 100_000;

/// The prefix of the name that the server gives to a transaction when it is prepared for a two-phase commit.
/// This module cannot tell which earlier name the transaction had, so a topic waits for every prepared
/// transaction.
const PREPARED: &str = "-1/";

/// A bound of a topic: no new message can appear with this number or a lower number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    /// The number of the topic's last pending message when the relay began to wait.
    pub(super) sequence: i64,
    /// The time when the server was started. After a restart, the bound is invalid.
    pub(super) started: i64,
}

/// The transactions that a topic waits for.
#[derive(Clone, Debug)]
struct Waiting {
    bound: Bound,
    transactions: Vec<String>,
    pause: Duration,
}

/// What a relay knows about a topic: the transactions that the topic waits for, or the topic's bound.
#[derive(Clone, Debug)]
enum Known {
    Waits(Waiting),
    Settled(Bound),
}

/// What a relay knows about all topics. Its workers share this value.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<String, Known>>);

impl Waits {
    fn take(&self, topic: &str) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(topic)
    }

    fn put(&self, topic: &str, known: Known) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if topics.len() >= MOST_TOPICS {
            topics.clear();
        }
        topics.insert(topic.to_owned(), known);
    }

    /// Forgets the bound of this topic. The worker does this when it has read all messages up to the bound.
    pub(super) fn forget(&self, topic: &str) {
        drop(self.take(topic));
    }
}

/// Which messages of a topic may be published.
#[derive(Debug, PartialEq)]
pub(super) enum Settled {
    /// The topic has no pending messages.
    Nothing,
    /// All messages up to this bound.
    UpTo(Bound),
    /// No message yet, because this number of transactions is still open. The number is 0 if the server was
    /// restarted, because then the wait begins again. Look again after this time.
    Open(usize, Duration),
}

pub(super) async fn settled(
    outbox: &Inner,
    link: &Link,
    waits: &Waits,
    topic: &str,
) -> Result<Settled, StoreError> {
    let waiting = match waits.take(topic) {
        Some(Known::Settled(bound)) => {
            waits.put(topic, Known::Settled(bound));
            return Ok(Settled::UpTo(bound));
        }
        Some(Known::Waits(waiting)) => waiting,
        None => {
            let rows = link.ask(|| outbox.names.bound().bind(topic.to_owned())).await?;
            let Some(row) = rows.first() else { return Ok(Settled::Nothing) };
            let Some(sequence) = column::<Option<i64>>(row, 0)? else { return Ok(Settled::Nothing) };
            let bound = Bound { sequence, started: column(row, 1)? };
            Waiting { bound, transactions: Vec::new(), pause: Duration::ZERO }
        }
    };
    let lock = outbox.names.lock_number(topic);
    let rows = link.ask(|| Names::holders().bind(lock)).await?;
    let Some(row) = rows.first() else { return Ok(Settled::Nothing) };
    let (holders, started) = (column::<Vec<String>>(row, 0)?, column::<i64>(row, 1)?);
    Ok(match judge(&waiting, holders, started) {
        Ok(bound) => {
            waits.put(topic, Known::Settled(bound));
            Settled::UpTo(bound)
        }
        Err(Some(waiting)) => {
            let open = Settled::Open(waiting.transactions.len(), waiting.pause);
            waits.put(topic, Known::Waits(waiting));
            open
        }
        Err(None) => Settled::Open(0, FIRST_PAUSE),
    })
}

/// Returns the bound if all transactions that the topic waits for have ended. Otherwise the error is the wait
/// for those that are still open. The error is `None` if the server was restarted, because then the wait must
/// begin again.
fn judge(waiting: &Waiting, holders: Vec<String>, started: i64) -> Result<Bound, Option<Waiting>> {
    if waiting.bound.started != started {
        return Err(None);
    }
    let first = waiting.pause.is_zero();
    let transactions: Vec<String> = holders
        .into_iter()
        .filter(|holder| first || holder.starts_with(PREPARED) || waiting.transactions.contains(holder))
        .collect();
    if transactions.is_empty() {
        return Ok(waiting.bound);
    }
    let pause = (waiting.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    Err(Some(Waiting { transactions, pause, ..*waiting }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_the_server_was_started_again_is_forgotten() {
        let bound = Bound { sequence: 7, started: 1 };
        let waiting = Waiting { bound, transactions: Vec::new(), pause: Duration::ZERO };
        let waiting = judge(&waiting, vec!["3/1".to_owned()], 1).unwrap_err().unwrap();
        assert!(judge(&waiting, Vec::new(), 2).unwrap_err().is_none());
    }
}
