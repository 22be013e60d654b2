//! `#[expect]` on the function, on a statement and on an argument.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
#[expect(unused_variables)]
async fn on_function(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    let unused = 1;
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn on_statement(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    #[expect(unused_variables)]
    let unused = 1;
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn on_argument(
    store: &MemoryStore,
    id: u64,
    #[expect(unused_variables)] unused: u64,
) -> Result<u64, Error> {
    Ok(id)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(on_function(&store, 1));
    drop(on_statement(&store, 1));
    drop(on_argument(&store, 1, 2));
}
