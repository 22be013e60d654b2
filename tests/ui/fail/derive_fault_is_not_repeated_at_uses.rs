use idem::KeyPart;

#[derive(KeyPart)]
enum Payment {
    Card,
    #[key_part(rename = "Card")]
    Cash,
}

fn key(payment: &Payment) -> idem::KeyBuilder {
    idem::KeyBuilder::new().part(payment)
}

fn main() {}
