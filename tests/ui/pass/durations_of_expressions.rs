//! Durations that are computed: a product, a static, a field, a call.
use idem::{Error, MemoryStore, idempotent};

use std::sync::LazyLock;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);
static LEASE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(20));

struct Config {
    ttl: Duration,
}

struct App {
    store: MemoryStore,
    config: Config,
}

impl App {
    fn patience(&self, factor: u32) -> Duration {
        self.config.ttl * factor
    }

    #[idempotent(key = "{id}", ttl = self.config.ttl, lease = *LEASE, wait = self.patience(2), store = self.store)]
    async fn charge(&self, id: u8) -> Result<u8, Error> {
        Ok(id)
    }
}

#[idempotent(key = "{id}", ttl = 2 * TTL, lease = TTL / 3, wait = Duration::from_secs(u64::from(id)), store = store)]
async fn computed(store: &MemoryStore, id: u8) -> Result<u8, Error> {
    Ok(id)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(App { store: store.clone(), config: Config { ttl: TTL } }.charge(1));
    drop(computed(&store, 1));
}
