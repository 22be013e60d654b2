//! Bodies without a value at their end.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn panics(store: &MemoryStore, id: u8) -> Result<u8, Error> {
    panic!("{id}")
}

#[idempotent(key = "{id}", store = store)]
async fn loops(store: &MemoryStore, id: u8) -> Result<u8, Error> {
    loop {
        if id > 0 {
            break Ok(id);
        }
        std::future::pending::<()>().await;
    }
}

#[idempotent(key = "{id}", store = store)]
async fn todo(store: &MemoryStore, id: u8) -> Result<u8, Error> {
    unreachable!("{id}")
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(panics(&store, 1));
    drop(loops(&store, 1));
    drop(todo(&store, 1));
}
