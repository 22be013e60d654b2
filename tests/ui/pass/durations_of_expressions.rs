//! Durations that are computed: a static, a field, a call.
use idem::{Error, MemoryStore, idempotent};

use std::sync::LazyLock;
use std::time::Duration;

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
