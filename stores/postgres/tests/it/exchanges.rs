//! How often one caller waits for the server.

use idem_test_servers::Postgres;
use idem_test_servers::meter::Meter;

use crate::support::{are_replayed, builder, new_table, record, replayed};

#[tokio::test(flavor = "multi_thread")]
async fn of_one_caller_a_claim_a_completion_and_a_replay_are_one_exchange_each() {
    let mut server = Postgres::start();
    let port = server.server().port();
    let meter = Meter::before(port).await.unwrap();
    let (url, table) = (server.url().replace(&port.to_string(), &meter.port.to_string()), new_table());
    let open = async || builder(&url).table(&table).connections(1).connect().await.unwrap();
    let store = open().await;
    // The first use of a statement prepares it.
    for number in 0..2 {
        let name = format!("warm {number}");
        record(&store, &name, "done").await;
        replayed(&store, &name).await;
    }
    let before = meter.now();
    for number in 0..20 {
        record(&store, &format!("order {number}"), "done").await;
    }
    let fresh = meter.since(before, 20).round_trips;
    let before = meter.now();
    are_replayed(&store, 0..20).await;
    assert_eq!((fresh, meter.since(before, 20).round_trips), (2.0, 1.0));

    // Another process, which finds out that what it has not seen mostly has a result.
    let other = open().await;
    are_replayed(&other, 0..10).await;
    let before = meter.now();
    are_replayed(&other, 10..20).await;
    assert_eq!(meter.since(before, 10).round_trips, 1.0);
}
