//! Walking through the whole store, page by page.

use idem_core::listing::{List, MAX_LOOKED_AT, Page};
use idem_core::protocol::{State, Timestamp};
use idem_core::{Scope, Store as _, StoreError};
use idem_runtime::DynStore;

/// The scope of the trail of what people did: `idem audit`.
pub(crate) const TRAIL: &str = "idem.audit";

/// A walk under way. The trail of what people did is not among the records, unless it is what is asked for.
pub(crate) struct Walk<'s> {
    store: &'s DynStore,
    next: Option<List>,
    with_trail: bool,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(store: &'s DynStore, states: Vec<State>, scope: Option<Scope>) -> Self {
        let with_trail = scope.as_ref().is_some_and(|scope| scope.as_str() == TRAIL);
        Self {
            store,
            with_trail,
            next: Some(
                List::default()
                    .with_states(states)
                    .with_scope(scope)
                    .with_after(None)
                    .with_limit(MAX_LOOKED_AT),
            ),
        }
    }

    /// Through the trail alone.
    pub(crate) fn of_the_trail(store: &'s DynStore) -> Self {
        Self::new(store, Vec::new(), Scope::new(TRAIL).ok())
    }

    /// The next page, or `None` at the end.
    pub(crate) async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(request) = self.next.take() else { return Ok(None) };
        let mut page = self.store.list(&request).await?;
        if !self.with_trail {
            page.records.retain(|listed| listed.key.scope().as_str() != TRAIL);
        }
        self.next = page.next.take().map(|after| request.with_after(Some(after)));
        Ok(Some(page))
    }
}

/// The store's clock.
pub(crate) async fn now(store: &DynStore) -> Result<Timestamp, StoreError> {
    store.list(&List::default().with_limit(1)).await.map(|page| page.now)
}
