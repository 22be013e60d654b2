//! A method, a function, and a closure.
use idem::{Error, MemoryStore, idempotent};

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Failure(u8);

impl Failure {
    fn is_final(&self) -> bool {
        self.0 > 0
    }
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self(0)
    }
}

fn is_final(failure: &Failure) -> bool {
    failure.is_final()
}

#[idempotent(key = "{id}", terminal = Failure::is_final, store = store)]
async fn by_method(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Err(Failure(id))
}

#[idempotent(key = "{id}", terminal = is_final, store = store)]
async fn by_function(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Err(Failure(id))
}

#[idempotent(key = "{id}", terminal = |Failure(code)| *code > 3, store = store)]
async fn by_closure(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Err(Failure(id))
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(by_method(&store, 1));
    drop(by_function(&store, 1));
    drop(by_closure(&store, 1));
}
