//! Fingerprints that are computed: by a macro, and as a tuple of calls, references and constants.
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

#[idempotent(key = "{id}", fingerprint = json!({ "amount": order.amount, "note": order.note }), store = store)]
async fn json_of_places(store: &MemoryStore, id: u8, order: Order) -> Result<String, Error> {
    Ok(order.note)
}

#[idempotent(
    key = "{id}",
    scope = "several",
    fingerprint = (P::kind(), normalized(&order.note), &order.note, order.amount + 1, VERSION, "eur", [order.amount; 2], order.note),
    store = store
)]
async fn several<P: Provider>(
    store: &MemoryStore,
    id: u8,
    order: Order,
    _provider: P,
) -> Result<String, Error> {
    Ok(order.note)
}
