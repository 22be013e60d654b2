use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let text = String::from("a");
    let borrowed = &text;
    drop(text);
    Ok(borrowed.len() as u8 + id)
}

fn main() {}
