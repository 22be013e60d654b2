//! Functions that give the record of a call: of free functions, methods, generics, options and patterns.
use idem::{Error, KeyPart, MemoryStore, RecordKey, Store, idempotent};

use std::sync::Arc;

/// Charges.
#[idempotent(key = "order/{id}", key_fn = charge_key, store = store)]
pub(super) async fn charge(store: &MemoryStore, id: u64, mut amount: u64) -> Result<u64, Error> {
    amount += id;
    Ok(amount)
}

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

#[idempotent(key = "{id}", missing_key = "run", key_fn = optional_key, store = store)]
async fn optional(store: &MemoryStore, id: Option<&str>, (_, _): (u8, u8)) -> Result<u8, Error> {
    Ok(1)
}

struct App {
    store: MemoryStore,
    tenant: String,
}

impl App {
    #[idempotent(key = "{self.tenant}/{id}", key_fn = refund_key, store = self.store)]
    async fn refund(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[idempotent(key = "{self.tenant}/{id}", key_fn = cancel_key, detach, store = self.store)]
    async fn cancel(self: Arc<Self>, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(charge(&store, 1, 2));
    drop(generic(store.clone(), 'x', &(1, 2), ["a"]));
    drop(optional(&store, None, (1, 2)));
    let key: Result<RecordKey, Error> = charge_key(&store, 1, 2);
    assert_eq!(key.unwrap().key().as_str(), "order/1");
    assert_eq!(generic_key(store.clone(), 'x', &(1, 2), ["a"]).unwrap().key().as_str(), "x/1");
    assert!(matches!(optional_key(&store, None, (1, 2)), Err(Error::MissingKey { .. })));
    let app = Arc::new(App { store, tenant: "acme".into() });
    drop(app.refund(3));
    drop(app.clone().cancel(3));
    assert_eq!(app.refund_key(3).unwrap().key().as_str(), "acme/3");
    assert!(app.refund_key(3).unwrap().scope().as_str().ends_with("::App::refund"));
    assert_eq!(app.cancel_key(3).unwrap().key().as_str(), "acme/3");
}
