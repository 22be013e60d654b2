//! How durable the claims of an operation are, and what cannot go with less than full durability.

use super::{Operation, Policy};
use idem_core::protocol::{Durability, OnCrash};

impl Operation {
    /// How durable a claim is when the body starts; [`Durability::Full`] unless set.
    ///
    /// With [`Durability::Relaxed`], the store may grant the first claim of a key before it is durable, so a fresh call
    /// waits for the disk once instead of twice. Results, errors and renewals are as durable as ever. The stores that use
    /// it, and what a crash of their server then means: `docs/guarantees.md`, "Relaxed claims". In short, a crash may
    /// lose the claims of the last moments while their bodies still run. A duplicate of such a call runs the body again,
    /// beside the first, as attempt 1 and not `recovered`.
    ///
    /// It cannot be combined with [`OnCrash::InDoubt`], [`max_attempts`](Self::max_attempts), `recover` or a transaction
    /// of the caller, and a body under it has no [`step`](crate::step)s: these depend on a record of each start.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use idem::{Durability, MemoryStore, Operation};
    ///
    /// // A second thumbnail does no harm.
    /// let thumbnail = Operation::new("images.thumbnail").claim_durability(Durability::Relaxed);
    /// let made = thumbnail.run(&MemoryStore::new(), "image-7", || async { Ok::<_, idem::Error>(128) });
    /// assert_eq!(made.await?, 128);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn claim_durability(mut self, durability: Durability) -> Self {
        self.policy.claim_durability = durability;
        self
    }
}

impl Policy {
    /// Whether a crash of the store's server may lose a claim while its body runs.
    pub(in crate::engine) fn relaxes_claims(&self) -> bool {
        self.claim_durability == Durability::Relaxed
    }

    /// What contradicts claims that are relaxed, if anything.
    pub(super) fn durability_fault(&self) -> Option<&'static str> {
        if !self.relaxes_claims() {
            None
        } else if self.on_crash == OnCrash::InDoubt {
            Some(
                "relaxed claims cannot go with `on_crash = \"in_doubt\"`: a claim that a crash of the store's server \
                 loses lets the body start twice",
            )
        } else if self.max_attempts.is_some() {
            Some(
                "relaxed claims cannot go with `max_attempts`: a claim that a crash of the store's server loses is an \
                 attempt that nobody counts",
            )
        } else if self.recovers {
            Some(
                "relaxed claims cannot go with `recover`: after a crash of the store's server that loses the claim, \
                 `recover` is not called",
            )
        } else {
            None
        }
    }
}
