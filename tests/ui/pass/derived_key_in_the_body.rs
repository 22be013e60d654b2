//! The context of the call, and an observed one.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<String, Error> {
    let context = idem::context();
    Ok(context.map(|context| context.downstream_key("gateway")).unwrap_or_default())
}

async fn observed(store: &MemoryStore) -> bool {
    let observed = idem::observe(charge(store, 1)).await;
    observed.outcome.is_some_and(|outcome| outcome.is_replayed())
}

pub(super) fn main() {
    drop(observed(&MemoryStore::new()));
}
