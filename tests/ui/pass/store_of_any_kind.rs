//! A generic store, and one of a trait.
use idem::{Error, MemoryStore, idempotent};

use std::sync::Arc;

use idem::Store;

trait HasStore {
    type Store: Store;
    fn store(&self) -> Self::Store;
}

#[idempotent(key = "{id}", scope = "of_trait", store = app.store())]
async fn of_trait<A: HasStore>(app: A, id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", scope = "generic", store = store)]
async fn generic(store: Arc<impl Store>, id: u8, scope: &str) -> Result<usize, Error> {
    Ok(scope.len())
}

pub(super) fn main() {
    struct App(MemoryStore);

    impl HasStore for App {
        type Store = MemoryStore;
        fn store(&self) -> MemoryStore {
            self.0.clone()
        }
    }

    let store = MemoryStore::new();
    drop(of_trait(App(store.clone()), 1));
    drop(generic(Arc::new(store), 1, ""));
}
