//! Functions of different shapes with the option `recover`.
use idem::{Error, MemoryStore, Recovery, idempotent};

async fn find(_: &Recovery, _: &MemoryStore, id: &u64) -> Result<Option<u64>, Error> {
    Ok(Some(*id))
}

#[idempotent(key = "{id}", recover = find, detach, store = store)]
async fn detached(store: MemoryStore, id: u64) -> Result<u64, Error> {
    drop(store);
    Ok(id)
}

#[idempotent(
    key = "{id}",
    recover = async |recovery: &Recovery, _: &MemoryStore, _: &u64| recovery.step("charge"),
    on_crash = "in_doubt",
    max_attempts = 3,
    store = store
)]
async fn closure(store: &MemoryStore, mut id: u64) -> Result<u64, Error> {
    id += 1;
    Ok(id)
}

async fn any<T, S>(_: &Recovery, _: &S, _: &T, _: &str) -> Result<Option<u64>, Error> {
    Ok(None)
}

#[idempotent(key = "{text}", scope = "generic", recover = any::<T, _>, store = store)]
async fn generic<T: Send + Sync>(store: &MemoryStore, more: T, text: String) -> Result<u64, Error> {
    drop(more);
    Ok(text.len() as u64)
}

struct App {
    store: MemoryStore,
}

impl App {
    #[idempotent(key = "{id}", recover = App::find, store = self.store)]
    async fn by_exclusive_reference(&mut self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    async fn find(&self, _: &Recovery, _: &u64) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

macro_rules! charge {
    ($name:ident, $argument:ident, $recover:path) => {
        #[idempotent(key = $argument, recover = $recover, store = store)]
        async fn $name(store: &MemoryStore, $argument: u64) -> Result<u64, Error> {
            Ok($argument)
        }
    };
}

charge!(out_of_a_macro, id, find);

fn is_send<T: Send>(_: T) {}

fn all_are_send() {
    let store = MemoryStore::new();
    is_send(detached(store.clone(), 1));
    is_send(closure(&store, 1));
    is_send(generic(&store, 1_u8, String::new()));
    is_send(out_of_a_macro(&store, 1));
    let mut app = App { store };
    is_send(app.by_exclusive_reference(1));
}
