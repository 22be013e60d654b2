//! Tests the memory that a running call holds beyond its body and its record: it is counted, so that an increase shows
//! on any machine.

use idem::MemoryStore;
use idem_upkeep::{body, guarded, held, records};

#[test]
fn a_call_in_flight_holds_less_than_two_kibibytes_beyond_its_body_and_its_record() {
    // Enough calls that the store's tables, which are filled at random, have the same size each time.
    const CALLS: u64 = 100_000;
    let plain = held(CALLS, |order| async move { body(&order).await }).unwrap();
    let store = MemoryStore::new();
    let calls = held(CALLS, |order| {
        let store = store.clone();
        async move { guarded(&store, &order).await }
    })
    .unwrap();
    let beyond = (calls.bytes - plain.bytes - records(CALLS).unwrap()) / i64::try_from(CALLS).unwrap();
    assert!((1..2_048).contains(&beyond), "{beyond} bytes");
}
