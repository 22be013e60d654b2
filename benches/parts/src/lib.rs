//! The measured calls, shared by the benches, the count of allocations and the count of instructions.

mod instant;

pub use instant::Instant;

use idem::{Error, Operation, Store, idempotent};

/// An order that is paid for.
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

/// The result of a body: about 200 bytes of JSON.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Receipt {
    /// The order's number.
    pub order: u64,
    /// In cents.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
    /// The gateway's reference.
    pub reference: String,
    /// The items that were paid for.
    pub lines: Vec<String>,
}

impl Receipt {
    /// The receipt of an order.
    #[must_use]
    pub fn of(order: &Order) -> Self {
        Self {
            order: order.id,
            amount: order.amount,
            currency: order.currency.clone(),
            reference: "ch_3MmlLrLkdIwHu7ix0snN0B15".to_owned(),
            lines: vec!["a book".to_owned(), "shipping to another country".to_owned()],
        }
    }
}

/// The same call with a result that is not empty.
///
/// # Errors
///
/// The library's own errors.
#[idempotent(key = "order/{order.id}", store = store, scope = "parts.receipt")]
pub async fn with_receipt<S: Store>(store: &S, order: &Order) -> Result<Receipt, Error> {
    Ok(Receipt::of(order))
}

/// The same call with `Operation::run`.
///
/// # Errors
///
/// The library's own errors.
pub async fn by_hand<S: Store>(operation: &Operation, store: &S, order: &Order) -> Result<(), Error> {
    operation.run(store, order.id, || async { Ok(()) }).await
}

/// A runtime with one thread, which calls need.
///
/// # Errors
///
/// The system's errors.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()
}
