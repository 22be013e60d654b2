//! Reads the store for the console: one walk serves all requests of a few seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::Scope;
use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use tokio::sync::Mutex;

use crate::access::Access;
use crate::end::Answer;
use crate::figures::Counted;
use crate::output::{is_lapsed, is_over};
use crate::walk::Walk;

/// How many records of each kind a page shows.
pub(super) const ROWS: usize = 200;
/// The minutes of the chart.
pub(super) const MINUTES: usize = 60;

/// One minute of the last hour.
#[derive(Clone, Copy, Default)]
pub(super) struct Minute {
    /// Calls that were first claimed in this minute, of records that still exist.
    pub(super) begun: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
}

pub(super) struct Look {
    pub(super) now: Timestamp,
    pub(super) counted: Counted,
    /// In doubt, lapsed, in flight, released and failed, the oldest first within each.
    pub(super) open: Vec<Listed>,
    /// The oldest minute first.
    pub(super) minutes: [Minute; MINUTES],
}

/// A record's position in the list: those that need a person come first.
fn urgency(listed: &Listed, now: Timestamp) -> u8 {
    match listed.record.state {
        State::InDoubt => 0,
        State::InFlight if is_lapsed(&listed.record, now) => 1,
        State::InFlight => 2,
        State::Released => 3,
        _ => 4,
    }
}

impl Look {
    async fn at(access: &Access) -> Answer<Self> {
        let mut look = Self {
            now: Timestamp::default(),
            counted: Counted::default(),
            open: Vec::new(),
            minutes: [Minute::default(); MINUTES],
        };
        let mut walk = Walk::new(&access.store, Vec::new(), None);
        while let Some(page) = walk.page().await? {
            look.now = page.now;
            look.counted.add(&page);
            for listed in page.records.into_iter().filter(|listed| !is_over(&listed.record, page.now)) {
                look.chart(&listed);
                if listed.record.state != State::Completed {
                    look.open.push(listed);
                }
            }
            let now = look.now;
            look.open.sort_by_key(|listed| (urgency(listed, now), listed.record.created_at));
            look.open.truncate(ROWS);
        }
        Ok(look)
    }

    /// The records of this operation and state, those that need a person first.
    pub(super) async fn some(
        access: &Access,
        scope: Option<Scope>,
        state: Option<State>,
    ) -> Answer<Vec<Listed>> {
        let mut some = Vec::new();
        let mut walk = Walk::new(&access.store, state.into_iter().collect(), scope);
        while let Some(page) = walk.page().await? {
            let now = page.now;
            some.extend(page.records.into_iter().filter(|listed| !is_over(&listed.record, now)));
            some.sort_by_key(|listed| (urgency(listed, now), listed.record.created_at));
            some.truncate(ROWS);
        }
        Ok(some)
    }

    fn chart(&mut self, listed: &Listed) {
        let record = &listed.record;
        let now = self.now;
        let minute = |at: Timestamp| {
            let ago = usize::try_from(now.since(at).as_secs() / 60).ok()?;
            (MINUTES - 1).checked_sub(ago)
        };
        if let Some(place) = minute(record.created_at) {
            self.minutes[place].begun += 1;
        }
        if let Some(place) = record.completed_at.and_then(minute) {
            match record.state {
                State::Failed => self.minutes[place].failed += 1,
                _ => self.minutes[place].completed += 1,
            }
        }
    }
}

/// The last look.
pub(super) struct Looks {
    last: Mutex<Option<(Instant, Arc<Look>)>>,
    /// How long a look is reused.
    fresh: Duration,
}

impl Looks {
    pub(super) fn new(costly: bool) -> Self {
        Self { last: Mutex::new(None), fresh: Duration::from_secs(if costly { 60 } else { 2 }) }
    }

    /// A recent look. A request that comes during another one's walk waits for that walk.
    pub(super) async fn get(&self, access: &Access) -> Answer<Arc<Look>> {
        let mut last = self.last.lock().await;
        if let Some((at, look)) = &*last
            && at.elapsed() < self.fresh
        {
            return Ok(look.clone());
        }
        let look = Arc::new(Look::at(access).await?);
        *last = Some((Instant::now(), look.clone()));
        Ok(look)
    }

    /// Drops the last look after a change.
    pub(super) async fn forget(&self) {
        *self.last.lock().await = None;
    }
}
