//! What a payment does, on either framework.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

#[derive(Deserialize)]
pub(crate) struct Order {
    amount: u64,
    currency: String,
    /// How long the payment takes.
    #[serde(default)]
    sleep_ms: u64,
    #[serde(default)]
    panic: bool,
}

#[derive(Serialize)]
pub(crate) struct Receipt {
    id: String,
    amount: u64,
    currency: String,
}

impl Receipt {
    pub(crate) fn location(&self) -> String {
        format!("/payments/{}", self.id)
    }
}

/// Makes payments, and counts them.
#[derive(Clone, Default)]
pub(crate) struct Bank(Arc<AtomicU64>);

impl Bank {
    /// A payment. To a gateway, give `idem::context()`'s `downstream_key("gateway")`: it charges once also after a crash.
    pub(crate) async fn pay(&self, order: Order) -> Receipt {
        self.0.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(order.sleep_ms)).await;
        assert!(!order.panic, "the request asks for a panic");
        let id = format!("{:032x}", rand::random::<u128>());
        Receipt { id, amount: order.amount, currency: order.currency }
    }

    pub(crate) fn executions(&self) -> Value {
        json!({ "executions": { "POST /payments": self.0.load(Ordering::SeqCst) } })
    }
}
