//! What the handlers did, payment by payment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

/// Upper limit of the time that a payment takes, in milliseconds.
const WORK: u64 = 50;

/// How often each payment was made.
#[derive(Clone, Default)]
pub(crate) struct Books(Arc<Mutex<BTreeMap<u64, u64>>>);

impl Books {
    pub(crate) async fn pay(&self, number: u64) -> String {
        sleep(Duration::from_millis(fastrand::u64(..WORK))).await;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default() += 1;
        receipt(number)
    }

    pub(crate) fn runs(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// How many of the payments `0..payments` were made twice or never.
    pub(crate) fn not_made_once(&self, payments: u64) -> usize {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (0..payments).filter(|number| made.get(number) != Some(&1)).count()
    }
}

pub(crate) fn receipt(number: u64) -> String {
    format!("receipt of payment {number}")
}
