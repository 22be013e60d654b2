use idem::idempotent;

#[idempotent(key = "{id}", store = store)]
mod charge {}

fn main() {}
