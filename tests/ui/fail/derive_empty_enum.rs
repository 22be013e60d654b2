use idem::KeyPart;

#[derive(KeyPart)]
enum Never {}

fn main() {}
