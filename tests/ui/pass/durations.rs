//! Lengths of time as text, constants and expressions.
use idem::{Error, MemoryStore, idempotent};

use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

struct App {
    store: MemoryStore,
    patience: Duration,
}

#[idempotent(key = "{id}", ttl = "1w 2d 3h 4m 5s 6ms", lease = LEASE, wait = app.patience / 2, store = app.store)]
async fn charge(app: &App, id: u8) -> Result<u8, Error> {
    Ok(id)
}

pub(super) fn main() {
    drop(charge(&App { store: MemoryStore::new(), patience: LEASE }, 1));
}
