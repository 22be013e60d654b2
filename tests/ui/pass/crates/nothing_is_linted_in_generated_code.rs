//! Every shape of expansion under every lint that a strict crate may deny.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused_qualifications,
    elided_lifetimes_in_paths,
    rust_2018_idioms,
    rust_2021_compatibility,
    rust_2024_compatibility,
    single_use_lifetimes,
    trivial_casts,
    unreachable_pub,
    unused_results,
    let_underscore_drop,
    missing_docs
)]
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use idem::{Error, KeyPart, MemoryStore, idempotent};

/// A part.
#[derive(Clone, Debug, KeyPart)]
pub struct Sku<T> {
    warehouse: u16,
    item: T,
}

/// Another.
#[derive(Clone, Copy, Debug, KeyPart)]
pub enum Region {
    /// Europe.
    #[key_part(rename = "eu")]
    Europe,
}

#[idempotent(key = "{sku}/{region}", ttl = "1h", lease = Duration::from_secs(5), store = store)]
async fn free(store: &MemoryStore, sku: &Sku<String>, region: Region) -> Result<u8, Error> {
    Ok(1)
}

#[idempotent(
    key = (id, sku.item.len()),
    scope = "generic",
    store = store,
    fingerprint = (sku.item, sku.warehouse),
    max_attempts = 3,
)]
async fn generic<T: KeyPart + ToString>(store: &MemoryStore, id: T, sku: &Sku<String>) -> Result<String, Error> {
    let text = id.to_string();
    std::future::ready(()).await;
    if text.is_empty() {
        return Ok("empty".to_owned());
    }
    Ok(text)
}

struct App {
    store: MemoryStore,
}

impl App {
    #[idempotent(key = "{id}", store = self.store, wait = "5s", on_crash = "in_doubt")]
    async fn method(&self, id: u8) -> Result<u8, Error> {
        std::future::ready(()).await;
        Ok(id)
    }

    #[idempotent(key = "{id}", store = self.store, detach, fail_open)]
    async fn detached(self: Arc<Self>, id: u8) -> Result<usize, Error> {
        Ok(usize::from(id))
    }
}

#[idempotent(key = "{id}", store = store)]
#[expect(unused_variables)]
async fn expected(store: &MemoryStore, id: u8) -> Result<(), Error> {
    let unused = 1;
    Ok(())
}

fn main() {
    let app = Arc::new(App { store: MemoryStore::new() });
    let sku = Sku { warehouse: 1, item: String::new() };
    drop(free(&app.store, &sku, Region::Europe));
    drop(generic(&app.store, 1_u8, &sku));
    drop(app.method(1));
    drop(app.clone().detached(1));
    drop(expected(&app.store, 1));
}
