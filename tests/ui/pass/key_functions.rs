//! Functions that return the key of a call's record: with generics, options, patterns and pointers.
use idem::{Error, KeyPart, MemoryStore, RecordKey, Store, idempotent};

use std::sync::Arc;

#[idempotent(key = (id, pair.0), scope = "generic", key_fn = generic_key, fingerprint = names.len(), store = store)]
async fn generic<'a, S: Store, K, const N: usize>(
    store: S,
    id: K,
    pair: &'a (u8, u8),
    names: [&'a str; N],
) -> Result<usize, Error>
where
    K: KeyPart + 'a,
{
    Ok(N)
}

/// `optional_key` has the visibility of this function.
#[idempotent(key = "{id}", missing_key = "run", key_fn = optional_key, store = store)]
pub(super) async fn optional(store: &MemoryStore, id: Option<&str>, (_, _): (u8, u8)) -> Result<u8, Error> {
    Ok(1)
}

struct App {
    store: MemoryStore,
    tenant: String,
}

impl App {
    #[idempotent(key = "{self.tenant}/{id}", key_fn = cancel_key, detach, store = self.store)]
    async fn cancel(self: Arc<Self>, mut id: u64) -> Result<u64, Error> {
        id += 1;
        Ok(id)
    }
}

#[test]
fn a_key_function_renders_the_key_of_a_call() {
    let store = MemoryStore::new();
    let key: Result<RecordKey, Error> = generic_key(store.clone(), 'x', &(1, 2), ["a"]);
    assert_eq!(key.unwrap().key().as_str(), "x/1");
    assert!(matches!(optional_key(&store, None, (1, 2)), Err(Error::MissingKey { .. })));
    let app = Arc::new(App { store, tenant: "acme".into() });
    assert_eq!(app.cancel_key(3).unwrap().key().as_str(), "acme/3");
}
