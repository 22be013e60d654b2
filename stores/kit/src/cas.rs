//! A store over any service that keeps bytes under names and writes them on a condition, such as a key-value
//! bucket or an object store.
//!
//! An operation begins with a record and its revision: the store reads them, or remembers them from its last
//! write. A claim may also begin on the guess that no record exists. The protocol's own functions decide the
//! answer and the new record. The store then writes, on the condition that the revision is still the same. If
//! the write is refused or its answer is lost, the store decides again. It decides from a new read, or from
//! the record that the refusal returned. So if a write was applied and only its answer was lost, the owner
//! still gets the answer of that write.
//!
//! A condition cannot use the clock of the service, so the decisions use the clocks of the callers. These
//! clocks may differ by the declared skew.

mod format;
mod store;

use std::time::Duration;

use bytes::Bytes;
use idem_core::StoreError;
use idem_core::inspection::Inspection;

pub use self::format::ObjectName;
pub use self::store::CasStore;

/// A service that keeps bytes under names.
///
/// An error says whether a write may have been applied, as an error of a [`Store`](idem_core::Store) does.
/// Each request must end within a bounded time; [`CasStore`] repeats the request after a transient error.
pub trait CompareAndSwap: Send + Sync + 'static {
    /// Identifies the bytes of an object: no two different contents of one object ever have the same
    /// revision.
    type Revision: Clone + Send + Sync + 'static;

    /// The newest bytes of an object, never older bytes from a replica; `None` if the object does not exist.
    fn get(
        &self,
        name: &ObjectName,
    ) -> impl Future<Output = Result<Option<Version<Self::Revision>>, StoreError>> + Send;

    /// Writes the object if it still has the revision `seen`. If `seen` is `None`, writes the object if it
    /// does not exist.
    ///
    /// The service may delete the object by itself after the time `keep`. If `keep` is `None`, it must not
    /// delete the object.
    fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&Self::Revision>,
        keep: Option<Duration>,
    ) -> impl Future<Output = Result<Put<Self::Revision>, StoreError>> + Send;

    /// Deletes the object if it still has this revision. Returns whether the object was deleted.
    fn delete(
        &self,
        name: &ObjectName,
        seen: &Self::Revision,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns about `limit` objects that follow the position `after`. `scope` is the encoded name of a
    /// scope; with `None`, the objects are of all scopes. A walk through all pages must return each object
    /// that exists during the whole walk.
    fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> impl Future<Output = Result<Listing<Self::Revision>, StoreError>> + Send;

    /// Reports which service this is, and which of its settings weaken the guarantee.
    fn inspect(&self) -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Upper limit for the size of an object, in bytes.
    fn max_bytes(&self) -> usize;
}

/// The bytes of an object, and their revision.
#[derive(Clone)]
pub struct Version<R> {
    /// The bytes.
    pub bytes: Bytes,
    /// The revision of these bytes.
    pub revision: R,
}

/// The outcome of a conditional write.
pub enum Put<R> {
    /// The object is written, and has this revision.
    Written(R),
    /// The condition did not hold, so nothing was written. `Some` is the newest version of the object, so the
    /// store need not read it. `None` means that the service returned no version; the object may or may not
    /// exist.
    Refused(Option<Version<R>>),
}

/// For a service that returns a revision after a write, and nothing after a refusal.
impl<R> From<Option<R>> for Put<R> {
    fn from(written: Option<R>) -> Self {
        written.map_or(Self::Refused(None), Self::Written)
    }
}

/// A page of [`CompareAndSwap::list`].
pub struct Listing<R> {
    /// The objects.
    pub versions: Vec<Version<R>>,
    /// The position after which the next objects follow; `None` after the last object.
    pub next: Option<Vec<u8>>,
}

/// The settings of a [`CasStore`].
#[derive(Clone, Copy, Debug)]
pub struct CasSettings {
    /// How much the clocks of the calling machines may differ.
    pub clock_skew: Duration,
    /// How long one operation may take, with all its requests and retries.
    pub operation_timeout: Duration,
}

impl Default for CasSettings {
    /// A skew of 1 s, and a timeout of 5 s.
    fn default() -> Self {
        Self { clock_skew: Duration::from_secs(1), operation_timeout: Duration::from_secs(5) }
    }
}
