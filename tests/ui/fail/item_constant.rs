use idem::idempotent;

#[idempotent(key = "{id}", store = store)]
const CHARGE: u8 = 1;

fn main() {}
