//! Stores on a PostgreSQL server that the test starts.

#![allow(dead_code, reason = "each test uses some of it")]

use idem_postgres::{PostgresStore, PostgresStoreBuilder};
use idem_testing::conformance::{Profile, Subject};

pub(crate) use crate::sql_servers::*;

/// Large enough for the kit's results, small enough for a test of the limit.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Two stores on a new table, as in two processes.
pub(crate) async fn subject(url: String, profile: Profile) -> Subject {
    let table = new_table();
    let open = || {
        let builder = PostgresStore::builder(&url).table(&table).max_result_bytes(MAX_RESULT_BYTES);
        builder.connections(2).connect()
    };
    Subject::new(open().await.unwrap(), profile).handle(open().await.unwrap())
}

/// A store on a new table of this server.
pub(crate) async fn store(url: &str) -> PostgresStore {
    builder(url).connect().await.unwrap()
}

/// The builder of [`store`].
pub(crate) fn builder(url: &str) -> PostgresStoreBuilder {
    PostgresStore::builder(url).table(new_table())
}

/// Bytes that do not compress.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    (0..count / 8).flat_map(|_| rand::random::<u64>().to_le_bytes()).collect()
}
