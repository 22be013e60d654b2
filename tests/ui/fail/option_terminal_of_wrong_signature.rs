use idem::{MemoryStore, idempotent};

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Failure;

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

fn is_final(failure: Failure) -> bool {
    matches!(failure, Failure)
}

#[idempotent(terminal = is_final, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, Failure> {
    Ok(id)
}

fn main() {}
