//! The rules of a store as a value: the shipped protocol, or a broken one.
//!
//! Must not restate a rule: what is not broken is the shipped function's.

use super::protocol::{self, Answer, Claim, Fence, Record, Request, State, Timestamp, Transition};

pub type Step = Transition<Answer>;

/// The rules of a store.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub apply: fn(&Asked<'_>) -> Step,
    /// Whether a purge must leave the record.
    pub is_live: fn(&Record, Timestamp) -> bool,
    /// Whether a claim is one atomic step; otherwise it reads first and writes later.
    pub claim_is_atomic: bool,
}

impl Rules {
    pub const SHIPPED: Self = Self::broken(shipped);

    /// Rules with another answer to some request.
    pub const fn broken(apply: fn(&Asked<'_>) -> Step) -> Self {
        Self { apply, is_live: protocol::is_live, claim_is_atomic: true }
    }

    pub fn apply(self, record: Option<&Record>, floor: Fence, request: &Request, now: Timestamp) -> Step {
        (self.apply)(&Asked { record, floor, request, now })
    }
}

fn shipped(asked: &Asked<'_>) -> Step {
    asked.right()
}

/// A request, and all that its answer depends on.
pub struct Asked<'a> {
    pub record: Option<&'a Record>,
    pub floor: Fence,
    pub request: &'a Request,
    pub now: Timestamp,
}

impl Asked<'_> {
    /// What the protocol does.
    pub fn right(&self) -> Step {
        self.on(self.record)
    }

    /// What the protocol does on another record.
    pub fn on(&self, record: Option<&Record>) -> Step {
        protocol::apply(record, self.floor, self.request, self.now)
    }

    /// What the protocol does where the store takes the record for this one.
    pub fn seeing(&self, change: impl FnOnce(Record) -> Record) -> Step {
        self.on(self.record.cloned().map(change).as_ref())
    }

    /// What the protocol does with another request.
    pub fn asking(&self, request: impl Into<Request>) -> Step {
        protocol::apply(self.record, self.floor, &request.into(), self.now)
    }

    /// What the protocol does, and then another record is written.
    pub fn writing(&self, change: impl FnOnce(Record) -> Record) -> Step {
        let step = self.right();
        Transition::new(step.write.map(change), step.answer)
    }

    /// What the protocol does with the request of who has the key.
    pub fn as_if_held(&self) -> Step {
        let Some(held) = self.record else { return self.right() };
        match self.request.clone() {
            Request::Renew(asked) => self.asking(asked.with_owner(held.owner).with_fence(held.fence)),
            Request::RecordStep(asked) => self.asking(asked.with_owner(held.owner).with_fence(held.fence)),
            Request::Complete(asked) => self.asking(asked.with_owner(held.owner).with_fence(held.fence)),
            Request::Release(asked) => self.asking(asked.with_owner(held.owner).with_fence(held.fence)),
            _ => self.right(),
        }
    }

    pub fn state(&self) -> Option<State> {
        self.record.map(|record| record.state)
    }

    /// The request, if it is a claim.
    pub fn claim(&self) -> Option<&Claim> {
        match self.request {
            Request::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    pub fn is_claim(&self) -> bool {
        self.claim().is_some()
    }

    pub fn is_release(&self) -> bool {
        matches!(self.request, Request::Release(_))
    }
}
