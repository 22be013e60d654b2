//! Every option that can stand beside the others.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(
    key = "{id}/{part}",
    ttl = "7d",
    lease = "1m",
    scope = "payments.charge",
    fingerprint = (amount, currency),
    wait = "5s",
    terminal = |_| false,
    on_crash = "rerun",
    max_attempts = 5,
    timeout = "2m",
    retry_after = "1s..5m",
    record_if = |_| true,
    store_timeout = "2s",
    fail_open,
    detach,
    missing_key = "reject",
    crate = ::idem,
    store = store,
)]
async fn charge(
    store: MemoryStore,
    id: u64,
    part: Option<u8>,
    amount: u32,
    currency: String,
) -> Result<u64, Failure> {
    Ok(id + u64::from(amount))
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Failure;

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self
    }
}
