use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let held = std::rc::Rc::new(id);
    std::future::ready(()).await;
    Ok(*held)
}

fn spawn<T: Send>(_: T) {}

fn spawns(store: &MemoryStore) {
    spawn(charge(store, 1));
}

fn main() {}
