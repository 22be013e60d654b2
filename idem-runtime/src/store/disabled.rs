//! A store that keeps nothing, for development.
//!
//! Owns the answers that such a store gives. The store says once, in an event, that nothing is protected.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::StoreError;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    Answer, ClaimAnswer, CompleteAnswer, Fence, Grant, Record, RecordStepAnswer, ReleaseAnswer, RenewAnswer,
    Request, ResolveAnswer, Timestamp,
};
use idem_core::{RecordKey, Store};

/// A store that keeps nothing, so every call runs its body. Use it for development, if a call that you repeat
/// by hand must run again.
///
/// The first call reports the event `store_disabled` at level `warn`, once in a process. Nothing else
/// changes: keys and policies are checked, steps run, and `context()` is available.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{Disabled, DynStore, MemoryStore, Operation};
///
/// let enabled = false; // As the program's settings say.
/// let store = if enabled { DynStore::new(MemoryStore::new()) } else { DynStore::new(Disabled) };
/// let charge = Operation::new("payments.charge");
/// let first = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(1) }).await?;
/// let again = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(2) }).await?;
/// assert_eq!((first, again), (1, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Disabled;

/// The next fence. Fences rise here too, even from one process to the next, because downstream services may
/// compare them.
static FENCE: LazyLock<AtomicU64> = LazyLock::new(|| {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    AtomicU64::new(Timestamp::default().after(since_epoch).as_micros())
});

static REPORTED: AtomicBool = AtomicBool::new(false);

impl Store for Disabled {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        Ok(match request {
            Request::Claim(claim) => {
                report(key);
                let fence = Fence::new(FENCE.fetch_add(1, Ordering::Relaxed));
                ClaimAnswer::Granted(Grant::new(fence, 1, false, claim.lease)).into()
            }
            Request::Renew(_) => RenewAnswer::Held.into(),
            Request::RecordStep(_) => RecordStepAnswer::Recorded.into(),
            Request::Complete(_) => CompleteAnswer::Done.into(),
            Request::Release(_) => ReleaseAnswer::Released.into(),
            // No key has a record. So this answer also fits a request that a later version adds.
            _ => ResolveAnswer::Absent.into(),
        })
    }

    async fn forget(&self, _: &RecordKey) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn get(&self, _: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }

    async fn purge(&self, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn list(&self, _: &List) -> Result<Page, StoreError> {
        Ok(Page::new(Timestamp::default()))
    }
}

fn report(key: &RecordKey) {
    if !REPORTED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            target: "idem",
            event = "store_disabled",
            operation = key.scope().as_str(),
            "the store is disabled: every call runs its body, and no result is kept"
        );
    }
}
