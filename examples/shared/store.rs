//! The store that `--store` names.

use idem::{DynStore, MemoryStore, SqliteStore};

/// Opens `memory` or `sqlite:FILE`.
pub(crate) async fn open(url: &str) -> Result<DynStore, Box<dyn std::error::Error>> {
    match url.split_once(':').unwrap_or((url, "")) {
        ("memory", "") => Ok(DynStore::new(MemoryStore::new())),
        ("sqlite", file) if !file.is_empty() => Ok(DynStore::new(SqliteStore::open(file)?)),
        _ => Err("there is no such store; use `memory` or `sqlite:FILE`".into()),
    }
}
