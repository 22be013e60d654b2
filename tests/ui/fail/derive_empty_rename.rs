use idem::KeyPart;

#[derive(KeyPart)]
enum Region {
    #[key_part(rename = "")]
    Eu,
}

fn main() {}
