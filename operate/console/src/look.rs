//! What a walk reads for the pages.

use std::sync::Arc;

use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use idem_core::{Key, RecordKey, Scope};
use idem_operate_kit::audit::{self, Entry};
use idem_operate_kit::evidence::{self, Form};
use idem_operate_kit::figures::Counted;
use idem_operate_kit::find;
use idem_operate_kit::text::{is_lapsed, is_over};
use idem_operate_kit::walk::{Prefix, Walk};
use idem_operate_kit::{Access, Result};

/// How many records of each kind a page shows.
pub(crate) const ROWS: usize = 200;
/// The minutes of the chart.
pub(crate) const MINUTES: usize = 60;

/// What a walk is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// The first page and `/metrics`.
    Overview,
    /// The records of an operation, in a state, with keys that begin like this.
    Some(Option<Scope>, Option<State>, Prefix),
    /// The audit trail.
    Trail,
    /// The records with this key, or with this digest, of one operation or of all.
    Find(Option<Scope>, String),
    /// How the results of this operation are kept.
    Form(Scope),
}

/// What a walk found.
pub(crate) enum Findings {
    Overview(Box<Look>),
    Records(Vec<Listed>, Timestamp),
    Trail(Vec<Entry>),
    Names(Vec<RecordKey>),
    Form(Form),
}

impl Query {
    pub(crate) async fn read(&self, access: &Access) -> Result<Arc<Findings>> {
        // Reads the store's marks, once.
        access.layers().await?;
        Ok(Arc::new(match self {
            Self::Overview => Findings::Overview(Box::new(Look::at(access).await?)),
            Self::Some(scope, state, prefix) => some(access, scope.clone(), *state, prefix.clone()).await?,
            Self::Trail => {
                let mut entries = audit::entries(access, None).await?;
                entries.truncate(ROWS);
                Findings::Trail(entries)
            }
            Self::Find(scope, text) => {
                let (key, digest) = (Key::new(text).ok(), text.to_ascii_lowercase());
                Findings::Names(find::find(access, scope.clone(), key.as_ref(), Some(&digest)).await?)
            }
            Self::Form(scope) => Findings::Form(evidence::of_scope(access, scope).await?),
        }))
    }
}

impl Findings {
    /// The stored names of the records.
    pub(crate) fn names(&self) -> Vec<&RecordKey> {
        match self {
            Self::Overview(look) => look.open.iter().map(|listed| &listed.key).collect(),
            Self::Records(records, _) => records.iter().map(|listed| &listed.key).collect(),
            Self::Names(names) => names.iter().collect(),
            Self::Trail(_) | Self::Form(_) => Vec::new(),
        }
    }
}

/// One minute of the last hour.
#[derive(Clone, Copy, Default)]
pub(crate) struct Minute {
    /// Calls that were first claimed in this minute, of records that still exist.
    pub(crate) begun: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

/// The first page's figures and records.
pub(crate) struct Look {
    pub(crate) now: Timestamp,
    pub(crate) counted: Counted,
    /// In doubt, lapsed, in flight, released and failed, the oldest first within each.
    pub(crate) open: Vec<Listed>,
    /// The oldest minute first.
    pub(crate) minutes: [Minute; MINUTES],
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

/// Keeps the first records by urgency.
fn keep_first(records: &mut Vec<Listed>, now: Timestamp) {
    records.sort_by_key(|listed| (urgency(listed, now), listed.record.created_at));
    records.truncate(ROWS);
}

async fn some(
    access: &Access,
    scope: Option<Scope>,
    state: Option<State>,
    prefix: Prefix,
) -> Result<Findings> {
    let (mut some, mut now) = (Vec::new(), Timestamp::default());
    let mut walk = Walk::new(&access.store, state.into_iter().collect(), scope).with_prefix(prefix);
    while let Some(page) = walk.page().await? {
        now = page.now;
        some.extend(page.records.into_iter().filter(|listed| !is_over(&listed.record, now)));
        keep_first(&mut some, now);
    }
    Ok(Findings::Records(some, now))
}

impl Look {
    async fn at(access: &Access) -> Result<Self> {
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
            keep_first(&mut look.open, look.now);
        }
        Ok(look)
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
