//! Broken protocols that lose what a record holds: its result, its expiry, or the record itself.

use super::mutants::*;
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, Release, ReleaseAnswer, Renew,
    RenewAnswer, State, StoredResult, Timestamp, Transition,
};
use super::rules::Rules;

/// What a deleted record leaves behind: an expired record without its fence and its attempts.
fn deleted(record: Option<&Record>, now: Timestamp) -> Option<Record> {
    let record = record?.clone();
    Some(record.with_fence(Fence::default()).with_attempt(0).with_expires_at(Some(now)))
}

/// A duplicate gets no result, only that it is a duplicate.
impl Rules for ReplayIsEmpty {
    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        let empty = || StoredResult::Value(Default::default());
        let marked = record.map(|record| record.clone().with_result(record.result.as_ref().map(|_| empty())));
        protocol::claim(marked.as_ref(), floor, request, now)
    }
}

/// The lease is only the time after which the record expires. Then no record is left, no number of attempts and no fence.
impl Rules for LeaseAsExpiry {
    fn claim(record: Option<&Record>, _: Fence, request: &Claim, now: Timestamp) -> Transition<ClaimAnswer> {
        protocol::claim(record.filter(|record| Self::is_live(record, now)), Fence::default(), request, now)
    }

    fn is_live(record: &Record, now: Timestamp) -> bool {
        let lapsed = record.state == State::InFlight && record.lease_until <= now;
        !lapsed && protocol::is_live(record, now)
    }
}

/// A body that fails deletes the record.
impl Rules for DeleteOnFailure {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        let step = protocol::release(record, request, now);
        match step.answer {
            ReleaseAnswer::Lost => step,
            answer => Transition::new(deleted(record, now), answer),
        }
    }
}

/// The same, without checking the owner.
impl Rules for DeleteOnFailureByAnybody {
    fn release(record: Option<&Record>, _: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        Transition::new(deleted(record, now), ReleaseAnswer::Released)
    }
}

/// A body that takes longer than the time to live leaves no result.
impl Rules for ExpiryFromCreation {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        altered(protocol::complete(record, request, now), |new| {
            let expires_at = Some(new.created_at.after(new.ttl));
            new.with_expires_at(expires_at)
        })
    }
}

/// The record of a long body expires while the body runs, in spite of renewals.
impl Rules for RenewalKeepsExpiry {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        let expires_at = record.and_then(|record| record.expires_at);
        altered(protocol::renew(record, request, now), |new| new.with_expires_at(expires_at))
    }
}

/// Housekeeping deletes completed records instead of expired ones.
impl Rules for PurgeOfLiveResults {
    fn is_live(record: &Record, now: Timestamp) -> bool {
        record.state != State::Completed && protocol::is_live(record, now)
    }
}
