use idem::KeyPart;

#[derive(KeyPart)]
union Either {
    a: u8,
    b: i8,
}

fn main() {}
