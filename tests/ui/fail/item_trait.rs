use idem::idempotent;

#[idempotent(key = "{id}", store = store)]
trait Charge {}

fn main() {}
