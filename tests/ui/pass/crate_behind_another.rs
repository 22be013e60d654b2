//! The library behind a module that re-exports it, as another crate would. The attribute is used directly and
//! in a macro.
mod framework {
    pub(super) use idem::{self, MemoryStore, idempotent};
}

macro_rules! operation {
    ($name:ident($id:ident) $body:block) => {
        #[idem::idempotent(
            key = "{id}/{other}",
            store = store,
            crate = $crate::attribute_shapes::pass::crate_behind_another::framework::idem
        )]
        async fn $name(store: &MemoryStore, id: u8, other: u8) -> Result<u8, idem::Error> {
            let $id = id + other;
            let result: Result<u8, idem::Error> = $body;
            Ok(result?.min(9))
        }
    };
}

use framework::MemoryStore;

operation!(charge(id) {
    let least = id.min(1);
    Ok(least)
});

#[derive(idem::KeyPart)]
#[key_part(crate = crate::attribute_shapes::pass::crate_behind_another::framework::idem)]
struct Id(u64);

#[framework::idempotent(key = id, store = store, crate = ::idem)]
async fn cancel(store: &MemoryStore, id: Id) -> Result<u8, idem::Error> {
    Ok(1)
}
