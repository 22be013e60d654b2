//! The rules of a store as a value: the shipped protocol, or a broken one.
//!
//! Must not restate a rule: the shipped functions decide everything that is not broken.

use super::protocol::{
    self, Answer, Claim, Fence, Owner, Record, Release, ReleaseCause, Request, State, Timestamp, Transition,
};

pub type Step = Transition<Answer>;

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The requests that `apply` answers. The protocol answers all others.
    pub only: fn(&Request) -> bool,
    pub apply: fn(&Asked<'_>) -> Step,
    /// Whether a purge must leave the record.
    pub is_live: fn(&Record, Timestamp) -> bool,
    /// Whether a claim is atomic; if not, it reads first and writes later.
    pub claim_is_atomic: bool,
}

impl Rules {
    pub const SHIPPED: Self = Self::broken(any_request, shipped);

    /// Rules with another answer to these requests.
    pub const fn broken(only: fn(&Request) -> bool, apply: fn(&Asked<'_>) -> Step) -> Self {
        Self { only, apply, is_live: protocol::is_live, claim_is_atomic: true }
    }

    pub fn apply(self, record: Option<&Record>, floor: Fence, request: &Request, now: Timestamp) -> Step {
        let asked = Asked { record, floor, request, now };
        if (self.only)(request) { (self.apply)(&asked) } else { asked.right() }
    }
}

pub fn shipped(asked: &Asked<'_>) -> Step {
    asked.right()
}

pub fn any_request(_: &Request) -> bool {
    true
}

macro_rules! requests {
    ($($name:ident: $requests:pat,)*) => {$(
        pub fn $name(request: &Request) -> bool {
            matches!(request, $requests)
        }
    )*};
}

requests! {
    claims: Request::Claim(_),
    recovering: Request::Claim(Claim { recovers: true, .. }),
    renewals: Request::Renew(_),
    steps: Request::RecordStep(_),
    completions: Request::Complete(_),
    releases: Request::Release(_),
    failed: Request::Release(Release { cause: ReleaseCause::Failed, .. }),
    doubtful: Request::Release(Release { cause: ReleaseCause::Doubtful, .. }),
    unused: Request::Release(Release { cause: ReleaseCause::Unused, .. }),
    nothing_happened: Request::Release(Release { cause: ReleaseCause::NothingHappened, .. }),
    words: Request::Resolve(_),
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

    /// What the protocol would do if the record had this change.
    pub fn seeing(&self, change: impl FnOnce(Record) -> Record) -> Step {
        self.on(self.record.cloned().map(change).as_ref())
    }

    /// As [`seeing`](Self::seeing), if the record is in this state.
    pub fn seeing_in(&self, state: State, change: impl FnOnce(Record) -> Record) -> Step {
        self.seeing(|record| if record.state == state { change(record) } else { record })
    }

    /// What the protocol does with another request.
    pub fn asking(&self, request: impl Into<Request>) -> Step {
        protocol::apply(self.record, self.floor, &request.into(), self.now)
    }

    /// What the protocol does, with a change of the record that it writes.
    pub fn writing(&self, change: impl FnOnce(Record) -> Record) -> Step {
        let step = self.right();
        Transition::new(step.write.map(change), step.answer)
    }

    /// What the protocol would do if the holder of the key had sent the request.
    pub fn as_if_held(&self) -> Step {
        let Some(held) = self.record else { return self.right() };
        self.asking(by(self.request, held.owner, held.fence))
    }

    pub fn state(&self) -> Option<State> {
        self.record.map(|record| record.state)
    }

    pub fn claim(&self) -> Option<&Claim> {
        match self.request {
            Request::Claim(claim) => Some(claim),
            _ => None,
        }
    }
}

/// The request as if this owner had sent it under this fence. Requests without a fence are unchanged.
fn by(request: &Request, owner: Owner, fence: Fence) -> Request {
    match request.clone() {
        Request::Renew(request) => request.with_owner(owner).with_fence(fence).into(),
        Request::RecordStep(request) => request.with_owner(owner).with_fence(fence).into(),
        Request::Complete(request) => request.with_owner(owner).with_fence(fence).into(),
        Request::Release(request) => request.with_owner(owner).with_fence(fence).into(),
        other => other,
    }
}
