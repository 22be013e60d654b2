//! The latest time that the store's clock can show, so that no result is returned after it has expired.
//!
//! A page of [`Store::list`] has the time that the clock showed. The clock showed it after the page was requested, and
//! both clocks run at the same speed. So the clock now shows at most that time plus the time that has passed here since
//! the request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use idem_core::Store;
use idem_core::listing::List;
use idem_core::protocol::Timestamp;

/// How long a reading is used.
const FRESH: Duration = Duration::from_secs(60);

/// How long a caller that already has its result waits for a reading.
const PATIENCE: Duration = Duration::from_secs(1);

/// The drift that is allowed for between the clocks: one part in this many. A quartz clock is twenty times better.
const DRIFT: u32 = 1_000;

#[derive(Default)]
pub(super) struct StoreClock(Mutex<Known>);

#[derive(Clone, Copy, Default)]
struct Known {
    reading: Option<Reading>,
    /// When the last request without a reading ended.
    failed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Reading {
    shown: Timestamp,
    asked: Instant,
}

/// The latest that the store's clock may show at an instant of this process.
pub(super) struct Latest {
    shown: Timestamp,
    at: Instant,
}

impl Latest {
    pub(super) const fn now(&self) -> Timestamp {
        self.shown
    }

    pub(super) const fn asked_at(&self) -> Instant {
        self.at
    }
}

impl Reading {
    fn latest(self) -> Latest {
        let at = Instant::now();
        let passed = at.duration_since(self.asked);
        Latest { shown: self.shown.after(passed + passed / DRIFT), at }
    }
}

impl StoreClock {
    /// The latest time that the clock of `store` can show; `None` if the store does not return its time.
    pub(super) async fn latest<S: Store>(&self, store: &S) -> Option<Latest> {
        let known = self.known(|known| *known);
        if let Some(reading) = known.reading.filter(|reading| reading.asked.elapsed() < FRESH) {
            return Some(reading.latest());
        }
        // If the store did not return its time just now, not every caller asks it again.
        if known.failed.is_some_and(|failed| failed.elapsed() < PATIENCE) {
            return None;
        }
        let asked = Instant::now();
        let page = timeout(PATIENCE, store.list(&List::default().with_limit(1))).await;
        let told = match page {
            Ok(Ok(page)) => Some(page.now),
            Ok(Err(error)) => {
                unknown(&error.to_string());
                None
            }
            Err(_) => {
                unknown("it did not answer in time");
                None
            }
        };
        self.known(|known| match told {
            Some(shown) => *known = Known { reading: Some(Reading { shown, asked }), failed: None },
            None => known.failed = Some(Instant::now()),
        });
        told.map(|shown| Reading { shown, asked }.latest())
    }

    fn known<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unknown(error: &str) {
    tracing::warn!(
        target: "idem",
        event = "cache_without_clock",
        error,
        "the store does not tell its time, so results are not kept in memory; allow it to list its records"
    );
}
