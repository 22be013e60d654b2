//! Stores on a MariaDB server that the test starts.

#![allow(dead_code, reason = "each test uses some of it")]

use std::time::Duration;

use idem_mysql::{MySqlStore, MySqlStoreBuilder};
use idem_test_servers::MariaDb;
use idem_testing::conformance::{Profile, Subject};

pub(crate) use crate::sql_servers::*;

/// Large enough for the kit's results, small enough for a test of the limit.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// The URL of a user whose sessions prepare no statements, as on MySQL. So the store always reads and locks
/// the rows before it writes (the long way).
pub(crate) fn long_way(server: &MariaDb) -> String {
    // `if not exists`, because other tests on this shared server create the same user.
    let user = format!(
        "create user if not exists unprepared; grant all on {}.* to unprepared; \
         set global init_connect = 'SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED'",
        server.database()
    );
    run(server, &user);
    server.url().replace("root@", "unprepared@")
}

/// Two URLs: sessions of the first prepare statements, sessions of the second do not.
pub(crate) fn both_ways(server: &MariaDb) -> [String; 2] {
    [server.url(), long_way(server)]
}

/// A profile with time to spare, because other tests load the machine at the same time.
pub(crate) const fn profile() -> Profile {
    Profile::real_clock().short(Duration::from_millis(200))
}

/// Two stores on a new table, as in two processes.
pub(crate) async fn subject(first: String, second: String, profile: Profile) -> Subject {
    let table = new_table();
    let open = |url: String| {
        let builder = MySqlStore::builder(&url).table(&table).max_result_bytes(MAX_RESULT_BYTES);
        builder.connections(2).connect()
    };
    Subject::new(open(first).await.unwrap(), profile).handle(open(second).await.unwrap())
}

/// A store on a new table of this server.
pub(crate) async fn store(url: &str) -> MySqlStore {
    builder(url).connect().await.unwrap()
}

/// The builder of [`store`].
pub(crate) fn builder(url: &str) -> MySqlStoreBuilder {
    MySqlStore::builder(url).table(new_table())
}
