//! The future of a guarded function is `Send` where its body is, and nothing asks for it.
use std::rc::Rc;
use std::sync::Arc;

use idem::{KeyPart, MemoryStore, Store, idempotent};

#[idempotent(key = "{id}", scope = "generic", store = store)]
async fn generic<S: Store, T: KeyPart + Send + Sync>(store: Arc<S>, id: T) -> Result<u8, idem::Error> {
    std::future::ready(()).await;
    Ok(1)
}

#[idempotent(key = "{id}", store = store)]
async fn local(store: Rc<MemoryStore>, id: Rc<str>) -> Result<usize, idem::Error> {
    std::future::ready(()).await;
    Ok(id.len())
}

#[idempotent(key = id, store = store, terminal = |_| true)]
async fn borrowing<'a, 'b: 'a>(store: &'a MemoryStore, id: &'b str) -> Result<usize, Failure> {
    let text: &'a str = id;
    Ok(text.len())
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Failure;

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

fn send<T: Send>(_: T) {}

fn all_are_send() {
    let store = MemoryStore::new();
    send(generic(Arc::new(store.clone()), 1));
    send(borrowing(&store, "a"));
}
