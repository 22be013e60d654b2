//! Detached bodies whose arguments do not borrow from the caller: owned values, `self` as an `Arc`, static
//! references, function pointers and boxed closures.
use idem::{Error, MemoryStore, idempotent};

use std::sync::Arc;

struct App(MemoryStore);

impl App {
    #[idempotent(key = "{id}/{name}", detach, store = self.0)]
    async fn charge(self: Arc<Self>, id: u64, name: &'static str, call: fn(&str) -> u8) -> Result<u8, Error> {
        Ok(call(name))
    }
}

#[idempotent(key = "{id}", scope = "refund", detach, store = store)]
async fn refund<T: Send + 'static>(store: MemoryStore, id: u64, value: T) -> Result<u64, Error> {
    drop(value);
    Ok(id)
}

#[idempotent(key = "{id}", scope = "check", detach, store = store)]
async fn check(
    store: MemoryStore,
    id: u64,
    valid: Box<dyn for<'a> Fn(&'a str) -> bool + Send>,
    (_guard, _): (String, u8),
) -> Result<bool, Error> {
    Ok(valid("a"))
}
