use idem::KeyPart;

#[derive(KeyPart)]
enum Region {
    #[key_part(rename = 1)]
    Eu,
}

fn main() {}
