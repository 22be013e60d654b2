//! Functions under `cfg` and `cfg_attr`, and functions with `cfg` on arguments.
use idem::{Error, MemoryStore, idempotent};

#[cfg(not(any()))]
#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64, #[cfg(any())] never: Never) -> Result<u64, Error> {
    Ok(id)
}

#[cfg_attr(all(), idempotent(key = "{id}", store = store))]
async fn refund(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", detach, store = store)]
async fn cancel(
    store: MemoryStore,
    id: u64,
    #[cfg(any())] _never: &Never,
    #[cfg(not(any()))] _guard: String,
) -> Result<u64, Error> {
    Ok(id)
}
