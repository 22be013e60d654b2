//! A worker in the model: what it waits for, what it does with an answer, and how it ends.
//!
//! Owns the behaviour of a caller of the protocol. The rules decide which answer the caller gets.

use super::one_key::OneKey;
use super::protocol::{
    Answer, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, Record, RecordStep, RecordStepAnswer,
    RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, StoredResult, Verdict,
};
use super::setup::{LEASE, RETRY, Setup, TTL};

/// One request of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Claim { other_arguments: bool },
    Renew { fence: Fence },
    Step { fence: Fence, position: u32 },
    Complete { fence: Fence, failed: bool },
    Release { fence: Fence, cause: ReleaseCause },
}

/// The part of an answer that matters to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Granted { fence: Fence, recovered: bool, recover_only: bool },
    NotNow,
    Held,
    End(Ending),
}

/// How a call of a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Crashed,
    Replayed,
    Mismatch,
    InDoubt,
    Exhausted,
    Completed,
    Released,
    /// The worker held the claim and lost it.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Before the worker's claim, or between two claims.
    Idle,
    /// The worker's request, or the answer to it, is under way.
    Waiting {
        call: Call,
        /// The record that a claim read, if the claim is not atomic.
        seen: Option<Box<Option<Record>>>,
        reply: Option<Reply>,
    },
    Running(Fence),
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// The number of this call; each call has a new owner.
    pub life: u8,
    pub doing: Doing,
}

impl Worker {
    pub const fn new() -> Self {
        Self { life: 0, doing: Doing::Idle }
    }

    pub const fn waits(call: Call) -> Doing {
        Doing::Waiting { call, seen: None, reply: None }
    }

    pub fn take(&mut self, call: Call, reply: Reply) {
        self.doing = match (call, reply) {
            (_, Reply::Granted { fence, .. })
            | (Call::Renew { fence } | Call::Step { fence, .. }, Reply::Held) => Doing::Running(fence),
            (_, Reply::NotNow | Reply::Held) => Doing::Idle,
            (_, Reply::End(ending)) => Doing::Ended(ending),
        };
    }
}

/// The owner of a call, from its worker and the number of the call.
pub const fn owner(worker: usize, life: u8) -> Owner {
    let mut bytes = [0; 16];
    bytes[0] = worker as u8 + 1;
    bytes[1] = life;
    Owner::from_bytes(bytes)
}

/// The worker of an owner; `None` for an operator, and for the owner that `OneKey::can_be_resolved` makes up.
pub fn worker_of(owner: Owner, workers: usize) -> Option<usize> {
    usize::from(owner.as_bytes()[0]).checked_sub(1).filter(|worker| *worker < workers)
}

/// Lets the store execute a request. `seen` is the record that a claim read, if the claim is not atomic.
pub fn apply(
    key: &mut OneKey,
    setup: &Setup,
    owner: Owner,
    call: Call,
    seen: Option<Option<Record>>,
) -> Reply {
    // Each grant records another value, so that a step or a replay shows its grant.
    let value = |fence: Fence| StoredResult::Value(fence.to_string().into());
    let request = match call {
        Call::Claim { other_arguments } => setup.claim(owner, other_arguments).into(),
        Call::Renew { fence } => Renew::new(owner, fence, LEASE).into(),
        Call::Step { fence, position } => {
            let step = RecordedStep::new(position.to_string(), None, value(fence));
            RecordStep::new(owner, fence, position, step).into()
        }
        Call::Complete { fence, failed } => {
            let verdict = if failed { Verdict::Failed } else { Verdict::Completed };
            Complete::new(owner, fence, verdict, value(fence), TTL).into()
        }
        Call::Release { fence, cause } => Release::new(owner, fence, cause).with_retry_after(RETRY).into(),
    };
    reply(&match seen {
        Some(seen) => key.apply_as_seen(setup.rules, seen.as_ref(), &request),
        None => key.apply(setup.rules, &request),
    })
}

fn reply(answer: &Answer) -> Reply {
    match answer {
        Answer::Claim(ClaimAnswer::Granted(Grant { fence, recovered, recover_only, .. })) => {
            Reply::Granted { fence: *fence, recovered: *recovered, recover_only: *recover_only }
        }
        Answer::Claim(ClaimAnswer::Busy { .. } | ClaimAnswer::RetryAt { .. }) => Reply::NotNow,
        Answer::Claim(ClaimAnswer::Replay(_)) => Reply::End(Ending::Replayed),
        Answer::Claim(ClaimAnswer::Mismatch) => Reply::End(Ending::Mismatch),
        Answer::Claim(ClaimAnswer::Exhausted { .. }) => Reply::End(Ending::Exhausted),
        Answer::Claim(ClaimAnswer::InDoubt) | Answer::Release(ReleaseAnswer::InDoubt) => {
            Reply::End(Ending::InDoubt)
        }
        Answer::Renew(RenewAnswer::Held | RenewAnswer::HeldInDoubt)
        | Answer::RecordStep(RecordStepAnswer::Recorded) => Reply::Held,
        Answer::Complete(CompleteAnswer::Done) => Reply::End(Ending::Completed),
        Answer::Release(ReleaseAnswer::Released) => Reply::End(Ending::Released),
        _ => Reply::End(Ending::Lost),
    }
}
