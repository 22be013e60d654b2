use idem::KeyPart;

#[derive(KeyPart)]
enum Payment {
    Cash,
    Card(f64),
}

fn main() {}
