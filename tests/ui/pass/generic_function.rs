//! Type parameters, bounds and a where clause, with a scope.
use idem::{Error, MemoryStore, idempotent};

use idem::{KeyPart, Store};

#[idempotent(key = "{id}", scope = "charge", store = store)]
async fn charge<S, K>(store: S, id: K) -> Result<bool, Error>
where
    S: Store,
    K: KeyPart + Default + PartialEq,
{
    Ok(id == K::default())
}

pub(super) fn main() {
    drop(charge(MemoryStore::new(), 1_u8));
}
