//! Tests of `key_fn`: the record key of a call, computed from its arguments.

use idem::{Error, MemoryStore, Store, idempotent};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: u64,
    note: String,
}

#[idempotent(key = "order/{order.id}", fingerprint = order, key_fn = charge_key, store = store)]
async fn charge(store: &MemoryStore, order: Order) -> Result<String, Error> {
    Ok(order.note)
}

struct App {
    store: MemoryStore,
}

impl App {
    #[idempotent(key = "{id}", key_fn = refund_key, store = self.store)]
    async fn refund(&self, id: &str) -> Result<usize, Error> {
        Ok(id.len())
    }
}

fn order(id: u64) -> Order {
    Order { id, note: "a".into() }
}

#[tokio::test]
async fn the_record_that_it_names_is_the_one_that_the_call_makes() {
    let store = MemoryStore::new();
    let key = charge_key(&store, order(1)).unwrap();
    assert!(store.get(&key).await.unwrap().is_none(), "naming a record makes none");
    charge(&store, order(1)).await.unwrap();
    assert!(store.get(&key).await.unwrap().is_some());
    assert_ne!(key, charge_key(&store, order(2)).unwrap());
    assert!(store.forget(&key).await.is_ok());
    assert!(store.get(&key).await.unwrap().is_none());

    let app = App { store };
    app.refund("7").await.unwrap();
    assert!(app.store.get(&app.refund_key("7").unwrap()).await.unwrap().is_some());
}
