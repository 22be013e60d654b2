use idem::KeyPart;

#[derive(KeyPart)]
struct Price {
    currency: String,
    amount: f64,
}

fn main() {}
