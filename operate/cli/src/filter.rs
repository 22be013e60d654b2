//! Selects records by state, age and lease, for lists and for actions on many records at once.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use idem_core::Scope;
use idem_core::listing::{Listed, Page};
use idem_core::protocol::{Record, State, Timestamp};
use idem_operate_kit::Access;
use idem_operate_kit::text::{is_lapsed, is_over};
use idem_operate_kit::walk::{Prefix, Walk};
use jiff::SignedDuration;

use super::end::Answer;

#[derive(Args)]
pub(crate) struct Filter {
    /// Only records in this state; can be repeated
    #[arg(long, value_delimiter = ',', value_parser = state())]
    state: Vec<Option<State>>,
    /// Only records first claimed longer ago than this, by the store's clock: 10m, 2h, 1d
    #[arg(long, value_name = "SPAN", value_parser = span)]
    older: Option<Duration>,
    /// Only records in flight whose lease has expired: their workers are gone, or cannot reach the store
    #[arg(long)]
    lapsed: bool,
    /// Only records whose key begins with this text; refused if the store keeps digests of keys
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    key_prefix: String,
}

/// Parses a state; `None` means the records that cannot be read.
fn state() -> impl TypedValueParser<Value = Option<State>> {
    PossibleValuesParser::new([
        PossibleValue::new("in-flight").alias("in_flight"),
        PossibleValue::new("completed"),
        PossibleValue::new("failed"),
        PossibleValue::new("released"),
        PossibleValue::new("in-doubt").alias("in_doubt"),
        PossibleValue::new("unreadable"),
    ])
    .map(|name| State::from_word(&name.replace('-', "_")))
}

/// Parses a span of time such as `10m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a span of time such as 30s, 10m, 2h or 7d".to_owned();
    // A day is always 24 hours, even where clocks change.
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let span: SignedDuration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.state.is_empty() && self.older.is_none() && !self.lapsed && self.key_prefix.is_empty()
    }

    /// The states that the options name. `unreadable` is left out, because it is not a state of a record.
    pub(crate) fn states(&self) -> Vec<State> {
        self.state.iter().copied().flatten().collect()
    }

    pub(crate) fn names_unreadable(&self) -> bool {
        self.state.contains(&None)
    }

    /// Whether the options name no state. If so, records in any state match, and so do records that cannot be
    /// read.
    pub(crate) const fn is_of_any_state(&self) -> bool {
        self.state.is_empty()
    }

    /// Whether state, lease and age match the options. An expired record matches only if `expired` is true.
    pub(crate) fn takes(&self, record: &Record, now: Timestamp, expired: bool) -> bool {
        (self.state.is_empty() || self.state.contains(&Some(record.state)))
            && (expired || !is_over(record, now))
            && (!self.lapsed || is_lapsed(record, now))
            && self.older.is_none_or(|older| now.since(record.created_at) > older)
    }

    /// A walk through the records in these states whose keys match the options.
    pub(crate) async fn walk<'a>(
        &self,
        access: &'a Access,
        states: Vec<State>,
        scope: Option<Scope>,
    ) -> Answer<Walk<'a>> {
        let prefix = Prefix::new(access, &self.key_prefix).await?;
        Ok(Walk::new(&access.store, states, scope).with_prefix(prefix))
    }

    /// All live records that match, each once, with the store's time when the record was read.
    pub(crate) async fn chosen(
        &self,
        access: &Access,
        states: Vec<State>,
        scope: Option<Scope>,
    ) -> Answer<Vec<(Listed, Timestamp)>> {
        let (mut chosen, mut names) = (Vec::new(), HashSet::new());
        let mut walk = self.walk(access, states, scope).await?;
        while let Some(Page { records, now, .. }) = walk.page().await? {
            let matching = records.into_iter().filter(|listed| self.takes(&listed.record, now, false));
            let new = matching.filter(|listed| names.insert(listed.key.clone()));
            chosen.extend(new.map(|listed| (listed, now)));
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_span_of_time() {
        assert_eq!(span("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(span("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(span("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for text in ["", "10", "soon", "-5m", "1mo"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
