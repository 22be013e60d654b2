use idem::KeyPart;

#[derive(KeyPart)]
struct Nothing;

fn main() {}
