use idem::{MemoryStore, idempotent};

#[idempotent(detach, key = "{id}", store = MemoryStore::new())]
async fn charge(id: std::rc::Rc<str>) -> Result<usize, idem::Error> {
    Ok(id.len())
}

fn main() {}
