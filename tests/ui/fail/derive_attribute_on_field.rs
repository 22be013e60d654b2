use idem::KeyPart;

#[derive(KeyPart)]
struct Sku {
    warehouse: u16,
    #[key_part(skip)]
    item: u64,
}

fn main() {}
