//! Walks through a whole store, page by page.

use idem_core::listing::{List, MAX_LOOKED_AT, Page};
use idem_core::protocol::{State, Timestamp};
use idem_core::{RecordKey, Scope, Store as _, StoreError};
use idem_runtime::DynStore;

use crate::access::Access;
use crate::error::{Error, Kind, Result};

/// The scope of the audit trail, which `idem audit` shows.
pub const TRAIL: &str = idem_core::RESERVED_SCOPES[0];

/// The beginning of the selected keys; empty for all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// The keys that begin with this text.
    ///
    /// # Errors
    ///
    /// The store keeps digests instead of keys, and digests do not show how a key begins.
    pub async fn new(access: &Access, text: &str) -> Result<Self> {
        if !text.is_empty() && (access.knows_names() || access.layers().await?.digested) {
            let why = "this store keeps digests in place of keys, which do not show how a key begins: choose records by \
                       scope, state and age, or give the whole key";
            return Err(Error::new(Kind::Unusable, why));
        }
        Ok(Self(text.to_owned()))
    }

    fn fits(&self, name: &RecordKey) -> bool {
        name.key().as_str().starts_with(&self.0)
    }
}

/// A walk in progress. It leaves out idem's own records, such as the audit trail, unless their scope is
/// given.
pub struct Walk<'s> {
    store: &'s DynStore,
    next: Option<List>,
    with_own: bool,
    prefix: Prefix,
}

impl<'s> Walk<'s> {
    /// A walk through the records in these states (all states if empty), of this operation or of all
    /// operations.
    #[must_use]
    pub fn new(store: &'s DynStore, states: Vec<State>, scope: Option<Scope>) -> Self {
        let with_own = scope.as_ref().is_some_and(Scope::is_reserved);
        let first = List::default().with_states(states).with_scope(scope).with_limit(MAX_LOOKED_AT);
        Self { store, with_own, prefix: Prefix::default(), next: Some(first) }
    }

    /// Keeps only the records whose keys begin with this text.
    #[must_use]
    pub fn with_prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// The next page, or `None` at the end.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn page(&mut self) -> std::result::Result<Option<Page>, StoreError> {
        let Some(request) = self.next.take() else { return Ok(None) };
        let mut page = self.store.list(&request).await?;
        if !self.with_own {
            page.records.retain(|listed| !listed.key.scope().is_reserved());
        }
        page.records.retain(|listed| self.prefix.fits(&listed.key));
        page.unreadable.retain(|key| self.prefix.fits(key));
        self.next = page.next.take().map(|after| request.with_after(Some(after)));
        Ok(Some(page))
    }
}

/// The time of the store's clock.
///
/// # Errors
///
/// The store fails.
pub async fn now(store: &DynStore) -> std::result::Result<Timestamp, StoreError> {
    store.list(&List::default().with_limit(1)).await.map(|page| page.now)
}
