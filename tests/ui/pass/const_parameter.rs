//! A const parameter and an `impl Trait` argument, with a scope.
use idem::{Error, MemoryStore, idempotent};

use idem::KeyPart;

#[idempotent(key = "{id}", scope = "payments.charge", store = store)]
async fn charge<const N: usize>(store: &MemoryStore, id: impl KeyPart, bytes: [u8; N]) -> Result<usize, Error> {
    Ok(bytes.len())
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), 1_u8, [0; 3]));
}
