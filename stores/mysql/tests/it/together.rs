//! Operations that wait at the same moment: what they share, and that each gets its own answer.

use futures_util::future::join_all;
use idem_test_servers::MariaDb;
use idem_test_servers::meter::Meter;

use crate::support::{both_ways, builder, grant, record, replayed};

/// How many statements of this kind the server has run.
fn count(server: &MariaDb, kind: &str) -> u32 {
    let sum = "select sum(variable_value) from information_schema.global_status where variable_name";
    server.sql(&format!("{sum} like 'COM\\_{kind}%'")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_completions_that_wait_together_share_statements() {
    let server = MariaDb::start();
    for url in both_ways(&server) {
        let store = builder(&url).connections(2).connect().await.unwrap();
        let before = ["INSERT", "UPDATE"].map(|kind| count(&server, kind));
        let names: Vec<_> = (0..64).map(|number| format!("order {number}")).collect();
        join_all(names.iter().map(|name| record(&store, name, name.as_str()))).await;
        for (kind, before) in ["INSERT", "UPDATE"].into_iter().zip(before) {
            let statements = count(&server, kind) - before;
            assert!(statements < 32, "{statements} of {kind} for 64 calls");
        }
        // What is known to have a result is read, many by one statement.
        let before = count(&server, "SELECT");
        let results = join_all(names.iter().map(|name| replayed(&store, name))).await;
        assert!(results.iter().zip(&names).all(|(result, name)| result.as_deref() == Some(name.as_bytes())));
        let statements = count(&server, "SELECT") - before;
        assert!(statements < 32, "{statements} reads of 64 results");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_new_keys_that_wait_together_are_one_exchange() {
    let mut server = MariaDb::start();
    let port = server.server().port();
    let meter = Meter::before(port).await.unwrap();
    let url = server.url().replace(&port.to_string(), &meter.port.to_string());
    let store = builder(&url).connections(1).connect().await.unwrap();
    let claims = |round: u32| {
        let (store, names) = (&store, (0..32).map(move |number| format!("{round}/{number}")));
        async move { join_all(names.map(|name| async move { grant(store, &name).await })).await }
    };
    // Until the statements are prepared.
    claims(0).await;
    claims(1).await;
    let before = meter.now();
    let granted = claims(2).await;
    // The first of them goes alone.
    let exchanges = meter.since(before, 1).round_trips;
    assert!(exchanges <= 4.0, "{exchanges}");
    let mut fences: Vec<_> = granted.iter().map(|(_, grant)| grant.fence).collect();
    fences.dedup();
    assert!(fences.len() <= 4, "those of one statement have one time: {fences:?}");
}
