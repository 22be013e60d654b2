//! Calls in tasks, in joins and in streams of futures.
use idem::{Error, MemoryStore, idempotent};

use futures_util::future::join_all;

#[idempotent(key = "{id}", store = store)]
async fn charge(store: MemoryStore, id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

async fn all(store: &MemoryStore) {
    let charges = (0..3).map(|id| charge(store.clone(), id));
    drop(join_all(charges).await);
    drop(tokio::spawn(charge(store.clone(), 4)).await);
    let _: (Result<u64, Error>, Result<u64, Error>) = tokio::join!(charge(store.clone(), 5), charge(store.clone(), 6));
}

pub(super) fn main() {
    drop(all(&MemoryStore::new()));
}
