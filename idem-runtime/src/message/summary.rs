//! What became of the messages of a stream.

use std::collections::BTreeMap;
use std::time::Duration;

/// What became of the messages that a [`Consumer`](super::Consumer) took, and what went wrong on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many messages were taken from the stream.
    pub taken: u64,
    /// How many were acknowledged.
    pub acknowledged: u64,
    /// For how many of those the last idempotent call was given a recorded result.
    pub replayed: u64,
    /// How often one was to be tried again: by the broker, or in its place in an order.
    pub retried: u64,
    /// How many were set aside.
    pub rejected: u64,
    /// How many were given back at the shutdown.
    pub given_back: u64,
    /// How often a handler panicked; each is one of `retried`.
    pub panicked: u64,
    /// How often the broker could not be told, or did not answer in time.
    pub broker_errors: u64,
    /// How often the stream gave an error instead of a message.
    pub stream_errors: u64,
    /// The operations whose results are kept for a shorter time than the
    /// [`redelivery_horizon`](super::Consumer::redelivery_horizon), and for how long: a message that is
    /// delivered after that runs its body again.
    pub forgetful: BTreeMap<String, Duration>,
}

impl Summary {
    /// Adds what another has counted, but for what it found forgetful.
    pub(super) fn add(&mut self, other: &Self) {
        self.taken += other.taken;
        self.acknowledged += other.acknowledged;
        self.replayed += other.replayed;
        self.retried += other.retried;
        self.rejected += other.rejected;
        self.given_back += other.given_back;
        self.panicked += other.panicked;
        self.broker_errors += other.broker_errors;
        self.stream_errors += other.stream_errors;
    }
}
