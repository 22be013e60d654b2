//! A store behind anything that derefs to it: a static by name, a newtype, `Rc`, a guard; or in a cell that is set once.
use idem::{Error, MemoryStore, Store, idempotent};

use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, MutexGuard, OnceLock, RwLock};

use tokio::sync::OnceCell;

static STORE: LazyLock<MemoryStore> = LazyLock::new(MemoryStore::new);
static SHARED: LazyLock<Arc<MemoryStore>> = LazyLock::new(Arc::default);
static LATER: OnceLock<Arc<MemoryStore>> = OnceLock::new();
static MADE_ASYNC: OnceCell<MemoryStore> = OnceCell::const_new();

struct Wrapped<S>(S);

impl<S> Deref for Wrapped<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

#[idempotent(key = "{id}", store = STORE)]
async fn by_name(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = SHARED)]
async fn shared(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = LATER)]
async fn set_later(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = MADE_ASYNC)]
async fn made_async(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn newtype(store: &Wrapped<Arc<MemoryStore>>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn counted(store: Rc<Wrapped<MemoryStore>>, id: u8) -> Result<u8, Error> {
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

#[idempotent(key = "{id}", scope = "generic", store = store)]
async fn generic<S: Store>(store: &Wrapped<Box<S>>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

fn send<F: Future + Send>(_: F) {}

pub(super) fn main() {
    let store = MemoryStore::new();
    send(by_name(1));
    send(shared(1));
    send(set_later(1));
    send(made_async(1));
    send(newtype(&Wrapped(Arc::new(store.clone())), 1));
    send(behind_a_lock(&RwLock::new(store.clone()), 1));
    send(generic(&Wrapped(Box::new(store.clone())), 1));
    drop(counted(Rc::new(Wrapped(store.clone())), 1));
    let lock = std::sync::Mutex::new(store);
    drop(guarded(lock.lock().unwrap(), 1));
}
