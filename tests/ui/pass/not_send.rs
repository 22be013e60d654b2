//! A body that is not `Send`, and arguments that are not.
use idem::{Error, MemoryStore, idempotent};

use std::cell::Cell;
use std::rc::Rc;

#[idempotent(key = "{id}", store = store)]
async fn charge(store: Rc<MemoryStore>, id: Rc<str>, count: &Cell<u8>) -> Result<usize, Error> {
    let held = Rc::new(1);
    std::future::ready(()).await;
    count.set(*held);
    Ok(id.len())
}

pub(super) fn main() {
    drop(charge(Rc::new(MemoryStore::new()), "a".into(), &Cell::new(1)));
}
