//! Annotated functions that `macro_rules!` macros expand to, with many kinds of fragments. One function takes
//! its transaction argument as `mut`.
use idem::{Error, MemoryStore, PostgresStore, idempotent};

macro_rules! operation {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($argument:ident: $ty:ty) -> $returns:ty $body:block, $key:expr, $ttl:literal) => {
        $(#[$meta])*
        #[idempotent(key = $key, ttl = $ttl, store = store, fingerprint = $argument)]
        $vis async fn $name(store: &MemoryStore, $argument: $ty) -> $returns $body
    };
}

operation! {
    /// Charges.
    pub(crate) fn charge(id: u64) -> Result<u64, Error> { Ok(id) }, "{id}", "1h"
}

operation! {
    fn refund(id: String) -> Result<usize, Error> { Ok(id.len()) }, (id, 1), "2h"
}

/// The key names an argument that the macro writes (`own`), and an argument that the macro's call writes
/// (`x`).
macro_rules! by_both {
    ($name:ident($argument:ident)) => {
        #[idempotent(key = "{own}/{x}", store = store)]
        async fn $name(store: &MemoryStore, own: u8, $argument: u8) -> Result<u8, Error> {
            Ok(own + $argument)
        }
    };
}

by_both!(cancel(x));

macro_rules! in_transaction {
    ($name:ident($tx:ident: $ty:ty)) => {
        #[idempotent(key = "{id}", store = store, transaction = $tx)]
        async fn $name(store: &PostgresStore, mut $tx: $ty, id: u64) -> Result<u64, Error> {
            let _inner = &mut $tx;
            Ok(id)
        }
    };
}

in_transaction!(transfer(tx: &mut sqlx::Transaction<'_, sqlx::Postgres>));
