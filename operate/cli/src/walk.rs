//! Walks through the whole store, page by page.

use idem_core::listing::{List, MAX_LOOKED_AT, Page};
use idem_core::protocol::{State, Timestamp};
use idem_core::{Scope, Store as _, StoreError};
use idem_runtime::DynStore;

/// The scope of the audit trail: `idem audit`.
pub(crate) const TRAIL: &str = idem_core::RESERVED_SCOPES[0];

/// A walk in progress. It leaves out idem's own records, such as the audit trail, unless their scope is given.
pub(crate) struct Walk<'s> {
    store: &'s DynStore,
    next: Option<List>,
    with_own: bool,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(store: &'s DynStore, states: Vec<State>, scope: Option<Scope>) -> Self {
        let with_own = scope.as_ref().is_some_and(Scope::is_reserved);
        Self {
            store,
            with_own,
            next: Some(
                List::default()
                    .with_states(states)
                    .with_scope(scope)
                    .with_after(None)
                    .with_limit(MAX_LOOKED_AT),
            ),
        }
    }

    /// A walk through the audit trail only.
    pub(crate) fn of_the_trail(store: &'s DynStore) -> Self {
        Self::new(store, Vec::new(), Scope::new(TRAIL).ok())
    }

    /// The next page, or `None` at the end.
    pub(crate) async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(request) = self.next.take() else { return Ok(None) };
        let mut page = self.store.list(&request).await?;
        if !self.with_own {
            page.records.retain(|listed| !listed.key.scope().is_reserved());
        }
        self.next = page.next.take().map(|after| request.with_after(Some(after)));
        Ok(Some(page))
    }
}

/// The time of the store's clock.
pub(crate) async fn now(store: &DynStore) -> Result<Timestamp, StoreError> {
    store.list(&List::default().with_limit(1)).await.map(|page| page.now)
}
