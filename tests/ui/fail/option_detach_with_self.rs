use idem::{MemoryStore, idempotent};

struct App(MemoryStore);

impl App {
    #[idempotent(key = "{id}", store = self.0, detach)]
    async fn charge(&self, id: u8) -> Result<u8, idem::Error> {
        Ok(id)
    }
}

fn main() {}
