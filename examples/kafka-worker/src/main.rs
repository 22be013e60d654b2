//! P.
fn main() {}
