use idem::idempotent;

#[idempotent(key = "{id}", store = store)]
struct Charge;

fn main() {}
