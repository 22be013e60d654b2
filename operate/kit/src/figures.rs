//! Counts the records of a whole store: the figures of each operation and of all.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_core::listing::{Listed, ListedResult, Page};
use idem_core::protocol::State;
use idem_core::{Scope, StoreError};
use idem_runtime::DynStore;
use serde_json::{Value, json};

use crate::text::{is_lapsed, is_over, safe, size, span};
use crate::walk::Walk;

/// The states, in the order of [`Figures::states`].
pub const STATES: [State; 5] =
    [State::InFlight, State::InDoubt, State::Released, State::Completed, State::Failed];

/// Figures of one operation, or of all.
#[derive(Default)]
pub struct Figures {
    /// Live records, by state.
    pub states: [u64; STATES.len()],
    /// In flight with an expired lease.
    pub lapsed: u64,
    /// Expired and not deleted yet.
    pub expired: u64,
    /// How long ago the oldest record in flight was first claimed.
    pub oldest_in_flight: Option<Duration>,
    /// How long ago the first of the expired leases ended.
    pub longest_lapse: Option<Duration>,
    /// How long ago the oldest record in doubt was first claimed.
    pub oldest_in_doubt: Option<Duration>,
    /// Bytes of results, as stored.
    pub bytes: u64,
    largest: u64,
    /// Results whose size the store does not report.
    pub unsized_values: u64,
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

    /// Live records.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.states.iter().sum()
    }

    fn json(&self) -> Value {
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

    fn row(&self, name: &str) -> [String; 10] {
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
            safe(name),
            in_flight,
            lapsed,
            oldest,
            in_doubt,
            released,
            completed,
            failed,
            self.expired.to_string(),
            bytes,
        ]
    }
}

/// The figures of all operations.
#[derive(Default)]
pub struct Counted {
    /// Of all operations.
    pub all: Figures,
    scopes: BTreeMap<String, Figures>,
    unreadable: u64,
}

impl Counted {
    /// Counts a page.
    pub fn add(&mut self, page: &Page) {
        for listed in &page.records {
            self.all.add(listed, page);
            let scope = listed.key.scope().as_str();
            match self.scopes.get_mut(scope) {
                Some(figures) => figures.add(listed, page),
                None => self.scopes.entry(scope.to_owned()).or_default().add(listed, page),
            }
        }
        self.unreadable += page.unreadable.len() as u64;
    }

    /// Values that this version cannot read.
    #[must_use]
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.unreadable == 0
    }

    /// The figures of each operation, by name.
    pub fn scopes(&self) -> impl Iterator<Item = (&String, &Figures)> {
        self.scopes.iter()
    }

    /// The rows of a table: each operation, then all.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 10]> {
        let mut rows: Vec<_> = self.scopes.iter().map(|(scope, figures)| figures.row(scope)).collect();
        rows.push(self.all.row("(all)"));
        rows
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

/// Counts the records of a store, or of one operation.
///
/// # Errors
///
/// The store fails.
pub async fn count(store: &DynStore, scope: Option<Scope>) -> Result<Counted, StoreError> {
    let mut counted = Counted::default();
    let mut walk = Walk::new(store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        counted.add(&page);
    }
    Ok(counted)
}
