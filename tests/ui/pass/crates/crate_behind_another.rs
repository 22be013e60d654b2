//! The library re-exported by another, also out of a macro.
mod framework {
    pub use idem::{self, MemoryStore, idempotent};

    #[macro_export]
    macro_rules! operation {
        ($name:ident($id:ident) $body:block) => {
            #[idem::idempotent(key = "{id}/{other}", store = store, crate = $crate::framework::idem)]
            async fn $name(store: &$crate::framework::MemoryStore, id: u8, other: u8) -> Result<u8, idem::Error> {
                let $id = id + other;
                let result = $body;
                result
            }
        };
    }
}

use framework::MemoryStore;

operation!(charge(id) { Ok(id.min(1)) });

#[framework::idempotent(key = "{id}", store = store, crate = crate::framework::idem)]
async fn refund(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

#[derive(idem::KeyPart)]
#[key_part(crate = crate::framework::idem)]
struct Id(u64);

#[idem::idempotent(key = id, store = store, crate = ::idem)]
async fn cancel(store: &MemoryStore, id: Id) -> Result<u8, idem::Error> {
    Ok(1)
}

fn main() {
    let store = MemoryStore::new();
    drop(charge(&store, 1, 2));
    drop(refund(&store, 1));
    drop(cancel(&store, Id(1)));
}
