use idem::KeyPart;

#[derive(KeyPart)]
#[key_part(rename = "Sku")]
struct Id(u64);

fn main() {}
