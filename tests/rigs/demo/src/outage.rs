//! The store that a demo starts, and an outage of a server in the middle of the run.

use std::path::Path;
use std::time::{Duration, Instant};

use idem_test_servers::{Aws, Postgres, Redis};

use crate::Failure;

/// The store, with its server if the demo starts one.
pub(crate) enum Store {
    Redis(Redis),
    Postgres(Postgres),
    DynamoDb(Aws),
    There(String),
}

impl Store {
    /// Checks that [`start`](Self::start) can start the store, and that its server can be stopped if `stops`.
    pub(crate) fn can_be_had(store: &str, stops: bool) -> Result<(), String> {
        match store {
            "redis" => Redis::installed(),
            "postgres" => Postgres::installed(),
            "dynamodb" => Aws::installed(),
            other if stops => Err(format!(
                "--store-stop needs a server that the demo starts, which `--store {other}` is not: give `--store redis`, \
                 `--store postgres` or `--store dynamodb`"
            )),
            _ => Ok(()),
        }
    }

    /// `stops`: the server must not lose acknowledged writes when it is killed.
    pub(crate) fn start(store: &str, folder: &Path, stops: bool) -> Self {
        match store {
            "redis" if stops => Self::Redis(Redis::with(&["--appendonly", "yes", "--appendfsync", "always"])),
            "redis" => Self::Redis(Redis::start()),
            "postgres" => Self::Postgres(Postgres::start()),
            "dynamodb" => Self::DynamoDb(Aws::start()),
            "sqlite" => Self::There(format!("sqlite:{}", folder.join("orders.db").display())),
            there => Self::There(there.to_owned()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::DynamoDb(server) => {
                format!(
                    "dynamodb://{}/orders",
                    server.url().trim_start_matches("http://").trim_end_matches('/')
                )
            }
            Self::There(url) => url.clone(),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            Self::Redis(server) => server.server().kill(),
            Self::Postgres(server) => server.server().kill(),
            // The emulator keeps its data in memory, so it is stopped, not killed.
            Self::DynamoDb(server) => server.server().signal("-STOP"),
            Self::There(_) => {}
        }
    }

    pub(crate) fn restart(&mut self) {
        match self {
            Self::Redis(server) => server.server().restart(),
            Self::Postgres(server) => server.restart(),
            Self::DynamoDb(server) => server.server().signal("-CONT"),
            Self::There(_) => {}
        }
    }
}

/// The time in which a server is down.
pub(crate) struct Outage {
    length: Duration,
    /// The outage begins when at most this many messages are left.
    left: u64,
    begin: Option<Instant>,
    is_over: bool,
}

/// What is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Begins,
    Ends,
}

impl Outage {
    /// With 0 seconds there is no outage.
    pub(crate) const fn new(seconds: u64, left: u64) -> Self {
        Self { length: Duration::from_secs(seconds), left, begin: None, is_over: seconds == 0 }
    }

    /// Whether the server is to be killed now, or started again.
    pub(crate) fn turn(&mut self, left: u64) -> Option<Turn> {
        match self.begin {
            _ if self.is_over => None,
            Some(begin) => {
                self.is_over = begin.elapsed() >= self.length;
                self.is_over.then_some(Turn::Ends)
            }
            None => {
                self.begin = (left <= self.left).then(Instant::now);
                self.begin.map(|_| Turn::Begins)
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
