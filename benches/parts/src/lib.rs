//! The calls that this package measures. `main.rs` makes them so that valgrind can count their instructions.
//! The tests count their allocations and bytes.

use idem::{Error, Store, idempotent};

/// An order to pay for.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Order {
    /// The number of the order.
    pub id: u64,
    /// The amount in cents.
    pub amount: u64,
    /// The currency's code (ISO 4217).
    pub currency: String,
}

impl Order {
    /// An order with this number.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self { id, amount: 1999, currency: "EUR".to_owned() }
    }
}

/// A call with the attribute and an empty body.
///
/// # Errors
///
/// The library's own errors.
#[idempotent(key = "order/{order.id}", store = store, scope = "parts.attribute")]
pub async fn by_attribute<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    Ok(())
}

/// The same call with a fingerprint.
///
/// # Errors
///
/// The library's own errors.
#[idempotent(
    key = "order/{order.id}",
    store = store,
    scope = "parts.fingerprint",
    fingerprint = (order.amount, order.currency)
)]
pub async fn with_fingerprint<S: Store>(store: &S, order: &Order) -> Result<(), Error> {
    Ok(())
}

/// A tokio runtime with one thread, in which to make the calls.
///
/// # Errors
///
/// The system's errors.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()
}
