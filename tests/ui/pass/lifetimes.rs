//! Named, elided and anonymous lifetimes.
use idem::{Error, MemoryStore, idempotent};

use std::borrow::Cow;

#[idempotent(key = "{id}/{note}", store = store)]
async fn charge<'a, 'b: 'a>(store: &'a MemoryStore, id: &'b str, note: Cow<'_, str>) -> Result<usize, Error> {
    let id: &'a str = id;
    Ok(id.len() + note.len())
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), "a", "b".into()));
}
