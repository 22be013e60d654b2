//! The type of any operation, how to send it to a store, and the type of its answer.

use crate::OperationKind;
use idem_core::protocol::{
    self, ClaimAnswer, CompleteAnswer, Grant, RecordStepAnswer, ReleaseAnswer, RenewAnswer, Request,
    ResolveAnswer,
};
use idem_core::{RecordKey, Store, StoreError};

/// Any operation.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Step(Request),
    Forget,
    Get,
    Purge(usize),
}

impl Ask {
    pub(super) fn kind(&self) -> OperationKind {
        match self {
            Self::Step(request) => OperationKind::of(request),
            Self::Forget => OperationKind::Forget,
            Self::Get => OperationKind::Get,
            Self::Purge(_) => OperationKind::Purge,
        }
    }

    /// Sends the operation to a store.
    pub(super) async fn of<S: Store>(&self, store: &S, key: &RecordKey) -> Result<Answer, StoreError> {
        Ok(match self {
            Self::Step(request) => Answer::Step(store.apply(key, request.clone()).await?),
            Self::Forget => Answer::Forget(store.forget(key).await?),
            // The record itself is compared after every operation.
            Self::Get => store.get(key).await.map(|_| Answer::Get)?,
            Self::Purge(limit) => Answer::Purge(store.purge(*limit).await?),
        })
    }
}

/// The answer to any operation.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Step(protocol::Answer),
    Forget(bool),
    Get,
    /// How many records were deleted; for the oracle, how many at most.
    Purge(usize),
}

impl Answer {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Step(answer) => name(answer),
            Self::Forget(true) => "forget: there was one",
            Self::Forget(false) => "forget: there was none",
            Self::Get => "get",
            Self::Purge(0) => "purge: none",
            Self::Purge(_) => "purge: some",
        }
    }
}

const fn name(answer: &protocol::Answer) -> &'static str {
    use protocol::Answer as Step;
    match answer {
        Step::Claim(ClaimAnswer::Granted(Grant { recover_only: true, .. })) => "claim: Granted, recover only",
        Step::Claim(ClaimAnswer::Granted(Grant { recovered: true, .. })) => "claim: Granted, recovered",
        Step::Claim(ClaimAnswer::Granted(_)) => "claim: Granted",
        Step::Claim(ClaimAnswer::Busy { .. }) => "claim: Busy",
        Step::Claim(ClaimAnswer::RetryAt { .. }) => "claim: RetryAt",
        Step::Claim(ClaimAnswer::Replay(_)) => "claim: Replay",
        Step::Claim(ClaimAnswer::Mismatch) => "claim: Mismatch",
        Step::Claim(ClaimAnswer::InDoubt) => "claim: InDoubt",
        Step::Claim(ClaimAnswer::Exhausted { .. }) => "claim: Exhausted",
        Step::Renew(RenewAnswer::Held) => "renew: Held",
        Step::Renew(RenewAnswer::HeldInDoubt) => "renew: HeldInDoubt",
        Step::Renew(RenewAnswer::Lost) => "renew: Lost",
        Step::RecordStep(RecordStepAnswer::Recorded) => "record_step: Recorded",
        Step::RecordStep(RecordStepAnswer::Lost) => "record_step: Lost",
        Step::Complete(CompleteAnswer::Done) => "complete: Done",
        Step::Complete(CompleteAnswer::Lost) => "complete: Lost",
        Step::Release(ReleaseAnswer::Released) => "release: Released",
        Step::Release(ReleaseAnswer::InDoubt) => "release: InDoubt",
        Step::Release(ReleaseAnswer::Lost) => "release: Lost",
        Step::Resolve(ResolveAnswer::Resolved) => "resolve: Resolved",
        Step::Resolve(ResolveAnswer::NotInDoubt(_)) => "resolve: NotInDoubt",
        Step::Resolve(ResolveAnswer::Changed(_)) => "resolve: Changed",
        Step::Resolve(ResolveAnswer::Absent) => "resolve: Absent",
        _ => "of a later version",
    }
}
