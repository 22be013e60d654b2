//! A method of a generic type, with a scope.
use idem::{Error, MemoryStore, idempotent};

use idem::KeyPart;

struct App<S, K> {
    store: S,
    last: Option<K>,
}

impl<S: idem::Store, K: KeyPart + Clone> App<S, K> {
    #[idempotent(key = "{id}", scope = "app.charge", store = self.store)]
    async fn charge(&mut self, id: K) -> Result<bool, Error> {
        Ok(self.last.replace(id).is_some())
    }
}

pub(super) fn main() {
    drop(App { store: MemoryStore::new(), last: None }.charge("a"));
}
