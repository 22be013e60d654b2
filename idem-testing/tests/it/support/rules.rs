//! The protocol as a trait: the shipped functions, or a broken variant.
//!
//! Must not restate a rule: every default method calls the shipped function.

use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, Timestamp, Transition,
};

/// The rules of a store. A mutant overrides one method.
pub trait Rules: Send + Sync + 'static {
    /// Whether a claim is one atomic step; otherwise it reads first and writes later.
    const CLAIM_IS_ATOMIC: bool = true;

    fn claim(
        record: Option<&Record>,
        floor: Fence,
        request: &Claim,
        now: Timestamp,
    ) -> Transition<ClaimAnswer> {
        protocol::claim(record, floor, request, now)
    }

    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
        protocol::renew(record, request, now)
    }

    fn record_step(
        record: Option<&Record>,
        request: &RecordStep,
        now: Timestamp,
    ) -> Transition<RecordStepAnswer> {
        protocol::record_step(record, request, now)
    }

    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
        protocol::complete(record, request, now)
    }

    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
        protocol::release(record, request, now)
    }

    fn resolve(
        record: Option<&Record>,
        resolution: &Resolution,
        now: Timestamp,
    ) -> Transition<ResolveAnswer> {
        protocol::resolve(record, resolution, now)
    }

    /// Whether a purge must leave the record.
    fn is_live(record: &Record, now: Timestamp) -> bool {
        protocol::is_live(record, now)
    }
}

/// The shipped rules.
pub struct Shipped;

impl Rules for Shipped {}
