//! A store in a cell that is set once, or behind a newtype, a guard or a lock.
use idem::{Error, MemoryStore, Store, idempotent};

use std::ops::Deref;
use std::sync::{Arc, MutexGuard, OnceLock, RwLock};

use tokio::sync::OnceCell;

static LATER: OnceLock<Arc<MemoryStore>> = OnceLock::new();
static MADE_ASYNC: OnceCell<MemoryStore> = OnceCell::const_new();

#[idempotent(key = "{id}", store = LATER)]
async fn set_later(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = MADE_ASYNC)]
async fn made_async(id: u8) -> Result<u8, Error> {
    Ok(id)
}

struct Wrapped<S>(S);

impl<S> Deref for Wrapped<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

#[idempotent(key = "{id}", scope = "newtype", store = store)]
async fn newtype<S: Store>(store: &Wrapped<Box<S>>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn guarded(store: MutexGuard<'_, MemoryStore>, id: u8) -> Result<u8, Error> {
    drop(store);
    Ok(id)
}

#[idempotent(key = "{id}", store = store.read().unwrap())]
async fn behind_a_lock(store: &RwLock<MemoryStore>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

fn send<F: Future + Send>(_: F) {}

fn all_are_send() {
    let store = MemoryStore::new();
    send(set_later(1));
    send(made_async(1));
    send(newtype(&Wrapped(Box::new(store.clone())), 1));
    send(behind_a_lock(&RwLock::new(store), 1));
}
