//! Walking through the whole store, page by page.

use idem::listing::{List, MAX_LOOKED_AT, Page};
use idem::protocol::{State, Timestamp};
use idem::{DynStore, Scope, Store as _, StoreError};

/// A walk under way.
pub(crate) struct Walk<'s> {
    store: &'s DynStore,
    next: Option<List>,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(store: &'s DynStore, states: Vec<State>, scope: Option<Scope>) -> Self {
        Self { store, next: Some(List { states, scope, after: None, limit: MAX_LOOKED_AT }) }
    }

    /// The next page, or `None` at the end.
    pub(crate) async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(request) = self.next.take() else { return Ok(None) };
        let mut page = self.store.list(&request).await?;
        self.next = page.next.take().map(|after| List { after: Some(after), ..request });
        Ok(Some(page))
    }
}

/// The store's clock.
pub(crate) async fn now(store: &DynStore) -> Result<Timestamp, StoreError> {
    store.list(&List { limit: 1, ..List::default() }).await.map(|page| page.now)
}
