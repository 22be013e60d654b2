//! Names of the user's module that the macro or the standard library also uses.
use ::idem::{MemoryStore, idempotent};

mod core {}
mod std {}
mod idem {}
struct Option;
struct Some;
struct Ok;

#[allow(non_upper_case_globals, dead_code)]
const SITE: u8 = 1;

#[idempotent(key = "{key}/{store}/{body}", store = codec)]
async fn charge(
    codec: &MemoryStore,
    key: u8,
    store: u8,
    body: u8,
    operation: u8,
    result: u8,
    fingerprint: u8,
) -> Result<u8, ::idem::Error> {
    let _ = (Option, Some, Ok);
    Result::Ok(key + store + body + operation + result + fingerprint + SITE)
}
