//! What a payment does, for either framework.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often payments really were made.
#[derive(Clone, Default)]
pub(crate) struct Executions(Arc<AtomicU64>);

/// The content of a request.
#[derive(Deserialize)]
pub(crate) struct Payment {
    amount: u64,
    currency: String,
    /// How long the payment takes.
    #[serde(default)]
    sleep_ms: u64,
    /// Whether the handler panics.
    #[serde(default)]
    panic: bool,
}

/// The content of a response.
#[derive(Serialize)]
pub(crate) struct Receipt {
    id: String,
    amount: u64,
    currency: String,
}

impl Executions {
    /// Makes a payment.
    pub(crate) async fn pay(&self, payment: Payment) -> Receipt {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(payment.sleep_ms)).await;
        assert!(!payment.panic, "the request asks for a panic");
        let id = format!("{:032x}", rand::random::<u128>());
        Receipt { id, amount: payment.amount, currency: payment.currency }
    }

    pub(crate) fn count(&self) -> String {
        self.0.load(Ordering::SeqCst).to_string()
    }
}

impl Receipt {
    /// Where the payment is found.
    pub(crate) fn location(&self) -> String {
        format!("/payments/{}", self.id)
    }
}
