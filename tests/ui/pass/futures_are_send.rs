//! The future of a guarded function is `Send` if the arguments and the body are `Send`. The macro does not
//! require them to be `Send`.
use std::rc::Rc;

use idem::{MemoryStore, idempotent};

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
    send(borrowing(&store, "a"));
}
