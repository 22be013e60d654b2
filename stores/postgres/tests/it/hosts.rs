//! Several servers in one URL, and `target_session_attrs`.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::StoreErrorKind;
use idem_runtime::protocol::ClaimAnswer;
use idem_test_servers::{Postgres, until};

use crate::support::{claimed, grant, record};

/// `HOST:PORT` of a server.
fn address(server: &Postgres) -> String {
    server.url().split(['@', '/']).find(|part| part.contains("127.0.0.1")).unwrap().to_owned()
}

/// A URL with all of these servers.
fn url(addresses: &[String], parameters: &str) -> String {
    format!("postgres://postgres@{}/postgres?{parameters}", addresses.join(","))
}

/// Sets whether the server is read-only, and returns when new sessions see the setting.
fn read_only(server: &Postgres, only: bool) {
    server.read_only(only);
    let expected = if only { "on" } else { "off" };
    until("the server has read its settings", || {
        server.sql("show default_transaction_read_only") == expected
    });
}

fn has(server: &Postgres, name: &str) -> bool {
    server.sql(&format!("select count(*) from idem_records_readable where key = '{name}'")) == "1"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_moves_to_the_server_of_its_url_that_takes_writes_whenever_the_roles_change() {
    for target in ["", "target_session_attrs=read-write"] {
        let mut servers = [Postgres::start(), Postgres::start()];
        let addresses: Vec<_> = servers.iter().map(address).collect();
        read_only(&servers[0], true);
        // The store creates its tables on the server that takes writes.
        let store = PostgresStore::connect(&url(&addresses, target)).await.unwrap();
        for (round, primary) in [1, 0, 1].into_iter().enumerate() {
            read_only(&servers[1 - primary], true);
            read_only(&servers[primary], false);
            drop(PostgresStore::connect(&servers[primary].url()).await.unwrap());
            let name = format!("order {round}");
            record(&store, &name, "done").await;
            assert!(has(&servers[primary], &name), "{target}: {name}");
        }
        // The store also skips a server that is gone.
        read_only(&servers[0], false);
        servers[1].server().kill();
        grant(&store, "last").await;
        assert!(has(&servers[0], "last"), "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_found_and_a_standby_is_not_used() {
    let mut primary = Postgres::start();
    drop(PostgresStore::connect(&primary.url()).await.unwrap());
    let standby = primary.standby();
    let parameters = "target_session_attrs=primary";
    let alone = PostgresStore::builder(&url(&[address(&standby)], parameters));
    let error = alone.operation_timeout(Duration::from_secs(3)).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("primary"), "{error}");
    let both = url(&[address(&standby), address(&primary)], parameters);
    let store = PostgresStore::connect(&both).await.unwrap();
    grant(&store, "before").await;
    until("the standby has the newest", || has(&standby, "before"));
    primary.server().kill();
    assert_eq!(standby.sql("select pg_promote()"), "t");
    grant(&store, "after").await;
    assert!(has(&standby, "after"));
    assert!(matches!(claimed(&store, "before").await, Ok(ClaimAnswer::Busy { .. })));
}
