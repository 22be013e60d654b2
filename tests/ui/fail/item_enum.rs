use idem::idempotent;

#[idempotent(key = "{id}", store = store)]
enum Charge {}

fn main() {}
