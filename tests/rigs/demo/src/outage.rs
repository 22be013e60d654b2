//! An outage of a server in the middle of the run.

use std::time::{Duration, Instant};

use crate::Failure;

/// The time in which a server is down.
pub(crate) struct Outage {
    length: Duration,
    /// The outage begins when at most this many messages are left.
    left: u64,
    begin: Option<Instant>,
    is_over: bool,
}

impl Outage {
    /// With 0 seconds there is no outage.
    pub(crate) const fn new(seconds: u64, left: u64) -> Self {
        Self { length: Duration::from_secs(seconds), left, begin: None, is_over: seconds == 0 }
    }

    /// Whether the server is to be started again now; `false` if it is to be killed.
    pub(crate) fn turn(&mut self, left: u64) -> Option<bool> {
        match self.begin {
            _ if self.is_over => None,
            Some(begin) => {
                self.is_over = begin.elapsed() >= self.length;
                self.is_over.then_some(true)
            }
            None => {
                self.begin = (left <= self.left).then(Instant::now);
                self.begin.map(|_| false)
            }
        }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.begin.is_some() && !self.is_over
    }

    /// Checks that the outage, if there is one, is over.
    pub(crate) fn was(&self) -> Result<(), Failure> {
        let early = "the run ended before the server was back: give more `--messages`";
        if self.is_over { Ok(()) } else { Err(early.into()) }
    }
}
