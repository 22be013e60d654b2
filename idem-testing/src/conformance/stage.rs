//! The states of a key, and how to bring a key into each. Table-driven checks start from these states.

use std::time::Duration;

use super::trial::{Broken, Checked, DAY, Held, LONG, Trial, same};
use idem_core::RecordKey;
use idem_core::protocol::{Claim, CompleteAnswer, OnCrash, ReleaseAnswer, ReleaseCause, State, Verdict};

/// The state of a key after a first grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The lease runs.
    Running,
    /// The lease is over, and no other owner has claimed the key since.
    Lapsed,
    /// Released, and due: it can be claimed.
    Released,
    /// Released, but not due yet.
    NotDue,
    Completed,
    Failed,
    InDoubt,
    /// The result has expired.
    Expired,
    /// The lease ran out, and then the record expired.
    ExpiredInFlight,
}

impl Stage {
    pub(super) const ALL: [Self; 9] = [
        Self::Running,
        Self::Lapsed,
        Self::Released,
        Self::NotDue,
        Self::Completed,
        Self::Failed,
        Self::InDoubt,
        Self::Expired,
        Self::ExpiredInFlight,
    ];

    /// The state of the key's record; `None` if the key has no live record.
    pub(super) const fn state(self) -> Option<State> {
        match self {
            Self::Running | Self::Lapsed => Some(State::InFlight),
            Self::Released | Self::NotDue => Some(State::Released),
            Self::Completed => Some(State::Completed),
            Self::Failed => Some(State::Failed),
            Self::InDoubt => Some(State::InDoubt),
            Self::Expired | Self::ExpiredInFlight => None,
        }
    }

    pub(super) fn live() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|stage| stage.state().is_some())
    }
}

impl Broken {
    /// Adds this stage to the message, for a check that goes through all stages.
    pub(super) fn at(self, stage: Stage) -> Self {
        Self(format!("with the key {stage:?}: {}", self.0))
    }
}

impl Trial {
    /// Brings a new key to a stage, and returns its first claim.
    pub(super) async fn bring(&self, key: &RecordKey, stage: Stage) -> Checked<Held> {
        self.bring_with(key, stage, self.ask()).await
    }

    /// As [`bring`](Self::bring), but makes `claim` as the first claim. Some stages change the claim's lease,
    /// lifetime or policy.
    pub(super) async fn bring_with(&self, key: &RecordKey, stage: Stage, claim: Claim) -> Checked<Held> {
        let short = claim.clone().with_lease(self.short());
        match stage {
            Stage::Running => self.grant(key, &claim).await,
            Stage::Lapsed => {
                let held = self.grant(key, &short).await?;
                self.pass(short.lease).await;
                Ok(held)
            }
            Stage::Released | Stage::NotDue => {
                let held = self.grant(key, &claim).await?;
                let retry_after = if stage == Stage::NotDue { LONG } else { Duration::ZERO };
                let release = held.release(ReleaseCause::Failed).with_retry_after(retry_after);
                same("release", self.release_with(key, &release).await?, ReleaseAnswer::Released)?;
                Ok(held)
            }
            Stage::Completed => self.finish(key, &claim, Verdict::Completed, DAY).await,
            Stage::Failed => self.finish(key, &claim, Verdict::Failed, DAY).await,
            Stage::InDoubt => {
                let claim = claim.with_on_crash(OnCrash::InDoubt);
                let held = self.grant(key, &claim).await?;
                let answer = self.release(&held, ReleaseCause::Abandoned).await?;
                same("release under the in_doubt policy", answer, ReleaseAnswer::InDoubt)?;
                Ok(held)
            }
            Stage::Expired => {
                let held = self.finish(key, &claim, Verdict::Completed, self.short()).await?;
                self.pass(self.short()).await;
                Ok(held)
            }
            Stage::ExpiredInFlight => {
                let held = self.grant(key, &short.with_ttl(self.short())).await?;
                self.pass(self.short() * 2).await;
                Ok(held)
            }
        }
    }

    async fn finish(&self, key: &RecordKey, claim: &Claim, verdict: Verdict, ttl: Duration) -> Checked<Held> {
        let held = self.grant(key, claim).await?;
        let request = held.completion("first").with_verdict(verdict).with_ttl(ttl);
        same("complete", self.complete_with(key, &request).await?, CompleteAnswer::Done)?;
        Ok(held)
    }
}
