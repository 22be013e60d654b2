//! Tests that the claims and completions of the stores are small: every call has room for both, and allocators are slow
//! for what is larger than a kilobyte and freed in another thread.

use std::any::type_name;

use idem::protocol::{Claim, Complete};
use idem::{
    DynamoDbStore, MemoryStore, MySqlStore, PostgresStore, RecordKey, RedisStore, SqliteStore, Store,
};

/// The size of the future that a step returns, in bytes.
fn size<'a, S: 'a, R: 'a, F: Future>(_: impl FnOnce(&'a S, &'a RecordKey, &'a R) -> F) -> usize {
    size_of::<F>()
}

fn is_small<S: Store>() {
    let claim = size(|store: &S, key, request: &Claim| store.claim(key, request));
    let complete = size(|store: &S, key, request: &Complete| store.complete(key, request));
    // The engine adds about 300 bytes to a claim, in a box of its own, and about 900 to a completion, with the call.
    assert!((1..=700).contains(&claim), "a claim of {}: {claim} bytes", type_name::<S>());
    assert!((1..=150).contains(&complete), "a completion of {}: {complete} bytes", type_name::<S>());
}

#[test]
fn claims_and_completions_of_each_store_are_small() {
    is_small::<MemoryStore>();
    is_small::<SqliteStore>();
    is_small::<RedisStore>();
    is_small::<PostgresStore>();
    is_small::<MySqlStore>();
    is_small::<DynamoDbStore>();
}
