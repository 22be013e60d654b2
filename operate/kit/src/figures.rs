//! Counts the records of a whole store: the figures of each operation, and the figures of all operations
//! together.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_core::listing::{Listed, ListedResult, Page};
use idem_core::protocol::{Record, State, Timestamp};
use serde_json::{Value, json};

use crate::error::Result;
use crate::text::{is_lapsed, is_over, safe, size, span};
use crate::walk::Walk;

/// The states, in the order of [`Figures::states`].
pub(crate) const STATES: [State; 5] =
    [State::InFlight, State::InDoubt, State::Released, State::Completed, State::Failed];

/// Figures of one operation, or of all operations together.
#[derive(Default)]
pub struct Figures {
    /// Live records, by state.
    pub states: [u64; STATES.len()],
    /// Records in flight with an expired lease.
    pub lapsed: u64,
    /// Records that have expired and are not deleted yet.
    expired: u64,
    /// How long ago the oldest record in flight was first claimed.
    pub oldest_in_flight: Option<Duration>,
    /// How long ago the earliest of the expired leases ended.
    longest_lapse: Option<Duration>,
    /// How long ago the oldest record in doubt was first claimed.
    oldest_in_doubt: Option<Duration>,
    /// Bytes of results, as stored.
    bytes: u64,
    largest: u64,
    /// The number of results whose size the store does not report.
    unsized_values: u64,
}

impl Figures {
    fn add(&mut self, listed: &Listed, page: &Page) {
        let (record, now) = (&listed.record, page.now);
        if is_over(record, now) {
            self.expired += 1;
        } else {
            if let Some(place) = STATES.iter().position(|state| *state == record.state) {
                self.states[place] += 1;
            }
            let age = Some(now.since(record.created_at));
            match record.state {
                State::InFlight => self.oldest_in_flight = self.oldest_in_flight.max(age),
                State::InDoubt => self.oldest_in_doubt = self.oldest_in_doubt.max(age),
                _ => {}
            }
            if is_lapsed(record, now) {
                self.lapsed += 1;
                self.longest_lapse = self.longest_lapse.max(Some(now.since(record.lease_until)));
            }
        }
        match listed.result {
            Some(ListedResult::Value { bytes: Some(bytes) }) => {
                self.bytes += bytes;
                self.largest = self.largest.max(bytes);
            }
            Some(ListedResult::Value { bytes: None }) => self.unsized_values += 1,
            _ => {}
        }
    }

    fn live(&self) -> u64 {
        self.states.iter().sum()
    }

    pub(crate) fn json(&self) -> Value {
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        let mut figures = json!({
            "live": self.live(),
            "lapsed": self.lapsed,
            "expired": self.expired,
            "oldest_in_flight_seconds": seconds(self.oldest_in_flight),
            "longest_lapse_seconds": seconds(self.longest_lapse),
            "oldest_in_doubt_seconds": seconds(self.oldest_in_doubt),
            "result_bytes": self.bytes,
            "largest_result_bytes": self.largest,
            "results_of_unknown_size": self.unsized_values,
        });
        for (state, count) in STATES.into_iter().zip(self.states) {
            figures[state.as_str()] = count.into();
        }
        figures
    }

    /// The columns of a table: name and text.
    fn columns(&self, scope: &str) -> [(&'static str, String); 10] {
        let span = |at: Option<Duration>| at.map_or_else(|| "-".to_owned(), span);
        let [in_flight, in_doubt, released, completed, failed] = self.states.map(|count| count.to_string());
        let bytes = if self.unsized_values > 0 { "-".to_owned() } else { size(self.bytes) };
        let lapsed = if self.lapsed > 0 {
            format!("{} ({})", self.lapsed, span(self.longest_lapse))
        } else {
            "0".into()
        };
        let oldest = span(self.oldest_in_flight);
        [
            ("SCOPE", safe(scope)),
            ("IN_FLIGHT", in_flight),
            ("LAPSED", lapsed),
            ("OLDEST", oldest),
            ("IN_DOUBT", in_doubt),
            ("RELEASED", released),
            ("COMPLETED", completed),
            ("FAILED", failed),
            ("EXPIRED", self.expired.to_string()),
            ("RESULTS", bytes),
        ]
    }
}

/// The figures of each operation, and of all operations together.
#[derive(Default)]
pub struct Counted {
    /// The figures of all operations together.
    all: Figures,
    /// The figures of each operation, by its name.
    pub scopes: BTreeMap<String, Figures>,
    /// The number of records that this version cannot read.
    pub unreadable: u64,
    /// The store's time at the last page.
    pub now: Timestamp,
}

impl Counted {
    fn add(&mut self, page: &Page) {
        for listed in &page.records {
            self.all.add(listed, page);
            let scope = listed.key.scope().as_str();
            match self.scopes.get_mut(scope) {
                Some(figures) => figures.add(listed, page),
                None => self.scopes.entry(scope.to_owned()).or_default().add(listed, page),
            }
        }
        self.unreadable += page.unreadable.len() as u64;
        self.now = page.now;
    }

    /// Whether the walk found no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.unreadable == 0
    }

    /// The head of a table of operations.
    #[must_use]
    pub fn head() -> [&'static str; 10] {
        Figures::default().columns("").map(|(name, _)| name)
    }

    /// The rows of the table: each operation, then all operations.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 10]> {
        let scopes = self.scopes.iter().map(|(scope, figures)| figures.columns(scope));
        let columns = scopes.chain([self.all.columns("(all)")]);
        columns.map(|columns| columns.map(|(_, text)| text)).collect()
    }

    /// The figures as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let scopes: serde_json::Map<String, Value> =
            self.scopes.iter().map(|(scope, figures)| (scope.clone(), figures.json())).collect();
        let mut all = self.all.json();
        all["unreadable"] = self.unreadable.into();
        json!({ "all": all, "scopes": scopes })
    }
}

/// What a walk found.
#[derive(Default)]
pub struct Look {
    /// The figures.
    pub counted: Counted,
    /// The first open records, each with the store's time when the record was read. Records that need a
    /// person come first, then the oldest.
    pub open: Vec<(Listed, Timestamp)>,
}

/// Counts the records of a walk, and keeps the first `rows` live records for whose state `is_open` returns
/// `true`.
///
/// # Errors
///
/// The store fails.
pub async fn look(mut walk: Walk<'_>, rows: usize, is_open: fn(State) -> bool) -> Result<Look> {
    let mut look = Look::default();
    while let Some(page) = walk.page().await? {
        look.counted.add(&page);
        let now = page.now;
        let live = page.records.into_iter().filter(|listed| !is_over(&listed.record, now));
        let open = live.filter(|listed| is_open(listed.record.state));
        look.open.extend(open.map(|listed| (listed, now)));
        look.open.sort_by_key(|(listed, now)| (urgency(&listed.record, *now), listed.record.created_at));
        look.open.truncate(rows);
    }
    Ok(look)
}

/// A record's position in a list: records that need a person come first.
fn urgency(record: &Record, now: Timestamp) -> u8 {
    match record.state {
        State::InDoubt => 0,
        State::InFlight if is_lapsed(record, now) => 1,
        State::InFlight => 2,
        State::Released => 3,
        _ => 4,
    }
}
