use idem::KeyPart;

#[derive(KeyPart)]
enum Region {
    #[key_part(name = "eu")]
    Eu,
}

fn main() {}
