//! The calls that are measured: the same for the benches, the counted allocations and the counted
//! instructions.

mod instant;

pub use instant::Instant;

use idem::{Error, Operation, Store, idempotent};

/// What is paid for.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// In cents.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
}

impl Order {
    /// An order with this number.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self { id, amount: 1999, currency: "EUR".to_owned() }
    }
}

/// A call by the attribute, with an empty body.
///
/// # Errors
///
/// Those of the library.
#[idempotent(key = "order/{order.id}", store = store, scope = "parts.attribute")]
pub async fn by_attribute<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    Ok(())
}

/// The same call with what must not change under its key.
///
/// # Errors
///
/// Those of the library.
#[idempotent(
    key = "order/{order.id}",
    store = store,
    scope = "parts.fingerprint",
    fingerprint = (order.amount, order.currency)
)]
pub async fn with_fingerprint<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    Ok(())
}

/// The same call by hand.
///
/// # Errors
///
/// Those of the library.
pub async fn by_hand<S: Store>(operation: &Operation, store: &S, order: &Order) -> Result<(), Error> {
    operation.run(store, order.id, || async { Ok(()) }).await
}

/// A runtime of one thread, as calls need one.
///
/// # Errors
///
/// Those of the system.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()
}
