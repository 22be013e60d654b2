use idem::KeyPart;

#[derive(KeyPart)]
enum Region {
    Eu,
    #[key_part(rename = "Eu")]
    Europe,
}

fn main() {}
