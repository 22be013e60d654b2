//! The store that a demo starts, and an outage of a server in the middle of the run.

use std::path::Path;
use std::time::{Duration, Instant};

use idem_test_servers::{Aws, Postgres, Redis};

use crate::Failure;

/// The store, with its server if the demo starts one.
pub(crate) struct Store {
    pub(crate) url: String,
    switch: Box<dyn FnMut(bool)>,
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
            "redis" => {
                let keeps: &[&str] =
                    if stops { &["--appendonly", "yes", "--appendfsync", "always"] } else { &[] };
                let mut server = Redis::with(keeps);
                Self::of(server.url(), move |on| match on {
                    true => server.server().restart(),
                    false => server.server().kill(),
                })
            }
            "postgres" => {
                let mut server = Postgres::start();
                Self::of(server.url(), move |on| match on {
                    true => server.restart(),
                    false => server.server().kill(),
                })
            }
            "dynamodb" => {
                let mut server = Aws::start();
                let url = format!("dynamodb://127.0.0.1:{}/orders", server.server().port());
                // The emulator keeps its data in memory, so it is stopped, not killed.
                Self::of(url, move |on| server.server().signal(if on { "-CONT" } else { "-STOP" }))
            }
            "sqlite" => Self::of(format!("sqlite:{}", folder.join("orders.db").display()), |_| {}),
            there => Self::of(there.to_owned(), |_| {}),
        }
    }

    fn of(url: String, switch: impl FnMut(bool) + 'static) -> Self {
        Self { url, switch: Box::new(switch) }
    }

    /// Starts its server again on its data, or kills it.
    pub(crate) fn switch(&mut self, on: bool) {
        (self.switch)(on);
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
