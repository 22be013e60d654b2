//! Tests that the futures of the stores' claims and completions are small. The engine puts each future into a
//! box. If a box is larger than a kilobyte and is freed in another thread, allocators are slow.

use std::any::type_name;

use idem::protocol::{Claim, Complete};
use idem::{
    BucketStore, DynamoDbStore, FolderStore, MemoryStore, MySqlStore, NatsKvStore, PostgresStore, RecordKey,
    RedisStore, SqliteStore, Store,
};

/// The size of the future that a store's operation returns, in bytes.
fn size<'a, S: 'a, R: 'a, F: Future>(_: impl FnOnce(&'a S, &'a RecordKey, &'a R) -> F) -> usize {
    size_of::<F>()
}

/// The futures of a store that are too large.
fn too_large<S: Store>() -> Vec<String> {
    let claim = size(|store: &S, key, request: &Claim| store.claim(key, request));
    let complete = size(|store: &S, key, request: &Complete| store.complete(key, request));
    let sizes = [("claim", claim, 700), ("completion", complete, 700)];
    let large = sizes.into_iter().filter(|(_, size, most)| !(1..=*most).contains(size));
    large.map(|(name, size, _)| format!("a {name} of {}: {size} bytes", type_name::<S>())).collect()
}

#[test]
fn claims_and_completions_of_each_store_are_small() {
    let large = [
        too_large::<MemoryStore>(),
        too_large::<SqliteStore>(),
        too_large::<RedisStore>(),
        too_large::<PostgresStore>(),
        too_large::<MySqlStore>(),
        too_large::<DynamoDbStore>(),
        too_large::<NatsKvStore>(),
        too_large::<BucketStore>(),
        too_large::<FolderStore>(),
    ];
    assert_eq!(large.concat(), [""; 0]);
}
