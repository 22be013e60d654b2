//! A broker for the rig: a file of the ledger, in which each line is a message, in the order of publishing.
//!
//! A line is `topic<TAB>id<TAB>payload`. Now and then publishing fails, as if the broker were unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use idem::outbox::{Message, PublishError, Publisher};
use idem_test_servers::Ledger;
use rand::RngExt as _;

/// The file of the ledger that has the messages.
const MESSAGES: &str = "messages";

/// The messages that arrived, and their violations.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) ids: BTreeSet<String>,
    /// The ids of each account's messages, in the order of their numbers, which begin with 1.
    topics: BTreeMap<String, Vec<String>>,
    /// How many messages arrived again.
    pub(crate) repeats: usize,
    pub(crate) violations: Vec<String>,
}

impl Published {
    pub(crate) fn read(ledger: &Ledger) -> io::Result<Self> {
        let mut published = Self::default();
        ledger.read(MESSAGES)?.iter().for_each(|line| published.take(line));
        Ok(published)
    }

    fn take(&mut self, line: &str) {
        let mut parts = line.split(['\t', ' ']);
        let (Some(topic), Some(id), Some(Ok(number))) =
            (parts.next(), parts.next(), parts.next().map(str::parse::<usize>))
        else {
            return self.violations.push(format!("a message that is none: {line}"));
        };
        let before = self.topics.entry(topic.to_owned()).or_default();
        if let Some(same) = number.checked_sub(1).and_then(|index| before.get(index)) {
            self.repeats += 1;
            if same != id {
                self.violations.push(format!("{topic}: number {number} came under two ids"));
            }
            return;
        }
        if number != before.len() + 1 {
            self.violations.push(format!("{topic}: number {number} came after {}", before.len()));
        }
        if !self.ids.insert(id.to_owned()) {
            self.violations.push(format!("{topic}: the id of number {number} is another's"));
        }
        before.push(id.to_owned());
    }
}

pub(crate) struct ToBroker(pub(crate) Ledger);

impl Publisher for ToBroker {
    async fn publish(&self, message: &Message) -> Result<(), PublishError> {
        if rand::rng().random_bool(0.01) {
            return Err(PublishError::unavailable("the broker said later"));
        }
        let payload = String::from_utf8_lossy(&message.payload);
        let line = format!("{}\t{}\t{payload}", message.topic, message.id);
        self.0.add(MESSAGES, &line).map_err(PublishError::unavailable)
    }
}
