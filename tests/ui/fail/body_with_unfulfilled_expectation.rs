#![deny(unfulfilled_lint_expectations)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
#[expect(unused_variables)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
