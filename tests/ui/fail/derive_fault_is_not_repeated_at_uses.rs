use idem::KeyPart;

#[derive(KeyPart)]
enum Payment {
    Card(u64),
}

fn key(payment: &Payment) -> idem::KeyBuilder {
    idem::KeyBuilder::new().part(payment)
}

fn main() {}
