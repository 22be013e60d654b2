//! Tests of `#[idempotent]`: an annotated function runs once for a key, and every duplicate gets its result.
//! This file has the application and the orders that the annotated functions use.

mod keys;
mod options;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem::{KeyPart, MemoryStore};
use serde::{Deserialize, Serialize};

use crate::support::Failure;

type Run = Result<Ran, Failure>;

/// The result of the functions in these tests: the number of the run and the rendered key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ran {
    number: usize,
    key: String,
}

/// The application that the functions belong to.
#[derive(Clone, Default)]
struct App {
    store: MemoryStore,
    runs: Arc<AtomicUsize>,
}

impl App {
    fn run(&self) -> Run {
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let key = idem::context().map(|context| context.key().as_str().to_owned());
        Ok(Ran { number, key: key.unwrap_or_default() })
    }
}

struct Order {
    id: u64,
    sku: Sku,
    amount: u32,
    lines: (String, u8),
}

impl Order {
    fn new(id: u64) -> Self {
        let sku = Sku { warehouse: 7, item: "a/b".into(), region: Region::EuWest };
        Self { id, sku, amount: 100, lines: ("x y".into(), 3) }
    }

    fn tenant(&self) -> &str {
        "acme"
    }

    fn into_id(self) -> u64 {
        self.id
    }
}

#[derive(Clone, KeyPart)]
struct Sku {
    warehouse: u16,
    item: String,
    region: Region,
}

#[derive(Clone, Copy, KeyPart)]
enum Region {
    #[key_part(rename = "eu-west")]
    EuWest,
    #[allow(dead_code)]
    Us,
}

#[track_caller]
fn ran(result: Run) -> (usize, String) {
    let Ran { number, key } = result.unwrap();
    (number, key)
}
