use idem::idempotent;

struct Charge;

#[idempotent(key = "{id}", store = store)]
impl Charge {}

fn main() {}
