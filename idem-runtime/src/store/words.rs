//! The words by which stores that people read name states, policies and reasons.

use crate::protocol::{OnCrash, State, Tombstone};

pub(super) const fn state(state: State) -> &'static str {
    match state {
        State::InFlight => "in_flight",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Released => "released",
        State::InDoubt => "in_doubt",
    }
}

pub(super) fn state_of(word: &str) -> Option<State> {
    Some(match word {
        "in_flight" => State::InFlight,
        "completed" => State::Completed,
        "failed" => State::Failed,
        "released" => State::Released,
        "in_doubt" => State::InDoubt,
        _ => return None,
    })
}

pub(super) const fn on_crash(policy: OnCrash) -> &'static str {
    match policy {
        OnCrash::Rerun => "rerun",
        OnCrash::InDoubt => "in_doubt",
    }
}

pub(super) fn on_crash_of(word: &str) -> Option<OnCrash> {
    Some(match word {
        "rerun" => OnCrash::Rerun,
        "in_doubt" => OnCrash::InDoubt,
        _ => return None,
    })
}

pub(super) const fn tombstone(reason: Tombstone) -> &'static str {
    match reason {
        Tombstone::TooLarge => "too_large",
        Tombstone::NotEncodable => "not_encodable",
        Tombstone::Exhausted => "exhausted",
    }
}

pub(super) fn tombstone_of(word: &str) -> Option<Tombstone> {
    Some(match word {
        "too_large" => Tombstone::TooLarge,
        "not_encodable" => Tombstone::NotEncodable,
        "exhausted" => Tombstone::Exhausted,
        _ => return None,
    })
}
