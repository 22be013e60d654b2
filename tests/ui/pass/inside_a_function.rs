//! An annotated function, and a method, inside another function.
use idem::{Error, MemoryStore, idempotent};



pub(super) fn main() {
    #[idempotent(key = "{id}", store = store)]
    async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    struct App;

    impl App {
        #[idempotent(key = "{id}", store = store)]
        async fn charge(&self, store: &MemoryStore, id: u64) -> Result<u64, Error> {
            Ok(id)
        }
    }

    let store = MemoryStore::new();
    drop(charge(&store, 1));
    drop(App.charge(&store, 1));
}
