use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
trait Charge {}

fn main() {}
