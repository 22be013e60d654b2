//! Fingerprints that are computed from the arguments: calls, macros, references, tuples of such.
use idem::{Error, MemoryStore, idempotent};

use serde_json::json;

const VERSION: u8 = 2;

struct Order {
    note: String,
    amount: u32,
}

trait Provider {
    fn kind() -> &'static str;
}

struct Card;

impl Provider for Card {
    fn kind() -> &'static str {
        "card"
    }
}

fn normalized(note: &str) -> String {
    note.to_lowercase()
}

#[idempotent(key = "{id}", fingerprint = body.trim().len(), store = store)]
async fn call_of_call(store: &MemoryStore, id: u8, body: String) -> Result<String, Error> {
    Ok(body)
}

#[idempotent(key = "{id}", fingerprint = json!({ "amount": order.amount, "note": order.note }), store = store)]
async fn json_of_places(store: &MemoryStore, id: u8, order: Order) -> Result<String, Error> {
    Ok(order.note)
}

#[idempotent(key = "{id}", fingerprint = &order.note, store = store)]
async fn reference(store: &MemoryStore, id: u8, order: Order) -> Result<String, Error> {
    Ok(order.note)
}

#[idempotent(key = "{id}", scope = "kinds", fingerprint = P::kind(), store = store)]
async fn kind<P: Provider>(store: &MemoryStore, id: u8, provider: P) -> Result<u8, Error> {
    drop(provider);
    Ok(id)
}

#[idempotent(
    key = "{id}",
    scope = "several",
    fingerprint = (P::kind(), normalized(&order.note), order.amount + 1, VERSION, "eur", [order.amount; 2], order.note),
    store = store
)]
async fn several<P: Provider>(store: &MemoryStore, id: u8, order: Order, _provider: P) -> Result<String, Error> {
    Ok(order.note)
}

#[idempotent(key = "{id}", fingerprint = if order.amount > 9 { "large" } else { "small" }, store = store)]
async fn chosen(store: &MemoryStore, id: u8, order: Order) -> Result<String, Error> {
    Ok(order.note)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    let order = || Order { note: "a".into(), amount: 1 };
    drop(call_of_call(&store, 1, "a".into()));
    drop(json_of_places(&store, 1, order()));
    drop(reference(&store, 1, order()));
    drop(kind(&store, 1, Card));
    drop(several(&store, 1, order(), Card));
    drop(chosen(&store, 1, order()));
}
