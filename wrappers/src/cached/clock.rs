//! The latest time that the store's clock can show, so that no result is returned after it has expired.
//!
//! A page of [`Store::list`] has the time that the clock showed. The clock showed it after the page was requested, and
//! both clocks run at the same speed. So the clock now shows at most that time plus the time that has passed here since
//! the request.

use std::time::Duration;

use tokio::sync::Mutex;
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

#[derive(Default)]
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

impl StoreClock {
    /// The instant of this process before which the clock of `store` cannot show `end`; `None` if the store does not return its time.
    pub(super) async fn until<S: Store>(&self, store: &S, end: Timestamp) -> Option<Instant> {
        let Reading { shown, asked } = self.reading(store).await?;
        // The time of now, because the reading may have taken time.
        let now = Instant::now();
        let passed = now.duration_since(asked);
        now.checked_add(end.since(shown.after(passed + passed / DRIFT)))
    }

    /// One request at a time: who comes meanwhile waits for its reading.
    async fn reading<S: Store>(&self, store: &S) -> Option<Reading> {
        let mut known = self.0.lock().await;
        if let Some(reading) = known.reading.filter(|reading| reading.asked.elapsed() < FRESH) {
            return Some(reading);
        }
        // If the store did not return its time just now, not every caller asks it again.
        if known.failed.is_some_and(|failed| failed.elapsed() < PATIENCE) {
            return None;
        }
        let asked = Instant::now();
        let error = match timeout(PATIENCE, store.list(&List::default().with_limit(1))).await {
            Ok(Ok(page)) => {
                let reading = Reading { shown: page.now, asked };
                known.reading = Some(reading);
                return Some(reading);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        tracing::warn!(
            target: "idem",
            event = "cache_without_clock",
            error,
            "the store does not tell its time, so results are not kept in memory; allow it to list its records"
        );
        known.failed = Some(Instant::now());
        None
    }
}
