use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let text = String::from("a");
    Ok(id + length(&text).len() as u8 + outlives(&text))
}

fn length(text: &str) -> &str {
    text
}

fn outlives(_: &'static str) -> u8 {
    1
}

fn main() {}
