use idem::KeyPart;

#[derive(KeyPart)]
enum Payment {
    Cash,
    Card(u64),
}

fn main() {}
