//! One place, a tuple, and nested tuples of places.
use idem::{Error, MemoryStore, idempotent};

#[derive(serde::Serialize)]
struct Order {
    id: u64,
    lines: Vec<String>,
}

#[idempotent(key = "{order.id}", fingerprint = order, store = store)]
async fn whole(store: &MemoryStore, order: &Order) -> Result<u64, Error> {
    Ok(order.id)
}

#[idempotent(key = "{order.id}", fingerprint = (order.lines, note, order.lines.len()), store = store)]
async fn parts(store: &MemoryStore, order: Order, note: Option<&str>) -> Result<Order, Failure> {
    Err(Failure)
}

impl<'de> serde::Deserialize<'de> for Order {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self { id: 1, lines: vec![] })
    }
}

struct Failure;

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self
    }
}

pub(super) fn main() {
    let store = MemoryStore::new();
    let order = Order { id: 1, lines: vec![] };
    drop(whole(&store, &order));
    drop(parts(&store, order, None));
}
