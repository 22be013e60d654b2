//! The transition for an operator's decision.

use std::time::Duration;

use super::transition::{Transition, is_live, released, terminal};
use super::{Owner, Record, Resolution, ResolveAnswer, Seen, State, StoredResult, Timestamp, Tombstone};

/// Applies an operator's decision to a key in doubt. A record in any other state can only be forgotten, and
/// only if it is as the operator saw it.
#[must_use]
pub fn resolve(
    record: Option<&Record>,
    resolution: &Resolution,
    now: Timestamp,
) -> Transition<ResolveAnswer> {
    let Some(record) = record.filter(|record| is_live(record, now)) else {
        return Transition::keep(ResolveAnswer::Absent);
    };
    if resolution.seen().is_some_and(|seen| seen != Seen::of(record)) {
        return Transition::keep(ResolveAnswer::Changed(record.state));
    }
    if matches!(resolution, Resolution::ForgetSeen(_)) {
        return Transition::put(ended(record), ResolveAnswer::Resolved);
    }
    if record.state != State::InDoubt {
        return Transition::keep(ResolveAnswer::NotInDoubt(record.state));
    }
    let new = match resolution.recorded() {
        Some((verdict, result)) => terminal(record, Owner::NOBODY, record.ttl, verdict, result.clone(), now),
        // The owner is removed too, so that the worker of the doubtful run does not mistake this release for
        // its own.
        None => Record { owner: Owner::NOBODY, ..released(record, false, Duration::ZERO, now) },
    };
    Transition::put(new, ResolveAnswer::Resolved)
}

/// The record that a store keeps for a forgotten key until the purge. It keeps the fence, because every later
/// fence must exceed it. Its expiry is so early that every clock counts the record as expired, and a purge
/// finds it first. It has a result, so no store keeps its steps.
fn ended(record: &Record) -> Record {
    let long_ago = Some(Timestamp::from_micros(1));
    Record {
        attempt: 0,
        result: Some(StoredResult::Tombstone(Tombstone::NotEncodable)),
        created_at: record.created_at,
        completed_at: long_ago,
        expires_at: long_ago,
        ..Record::new(State::Completed, Owner::NOBODY, record.fence)
    }
}
