use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
enum Charge {}

fn main() {}
