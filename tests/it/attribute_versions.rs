//! Tests of results that an older build recorded.

use idem::{MemoryStore, idempotent};
use serde::{Deserialize, Serialize};

use crate::support::Failure;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
struct Receipt {
    number: u64,
    currency: String,
}

/// The forms in which receipts were recorded.
#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Number(u64),
    Receipt { number: u64, currency: String },
}

impl From<Recorded> for Receipt {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Number(number) => Self { number, currency: "EUR".to_owned() },
            Recorded::Receipt { number, currency } => Self { number, currency },
        }
    }
}

/// An older version of the function.
#[idempotent(key = "{id}", scope = "test.charge", store = store)]
async fn charged(store: &MemoryStore, id: u64) -> Result<u64, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", scope = "test.charge", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<Receipt, Failure> {
    Ok(Receipt { number: id, currency: "USD".to_owned() })
}

#[tokio::test]
async fn serde_reads_what_an_older_build_recorded_at_each_replay() {
    let store = MemoryStore::new();
    charged(&store, 7).await.unwrap();
    for _ in 0..2 {
        let old = Receipt { number: 7, currency: "EUR".to_owned() };
        assert_eq!(charge(&store, 7).await.unwrap(), old);
    }
    assert_eq!(charged(&store, 7).await.unwrap(), 7, "the build before reads it still");
    for _ in 0..2 {
        assert_eq!(charge(&store, 8).await.unwrap().currency, "USD", "what is new is as it is");
    }
}
