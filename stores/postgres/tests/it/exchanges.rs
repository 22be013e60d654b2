//! How often one caller waits for the server.

use idem_test_servers::Postgres;
use idem_test_servers::meter::Meter;

use crate::support::{builder, each_is_one_exchange, new_table, record, replayed};

#[tokio::test(flavor = "multi_thread")]
async fn of_one_caller_a_claim_a_completion_and_a_replay_are_one_exchange_each() {
    let mut server = Postgres::start();
    let port = server.server().port();
    let meter = Meter::before(port).await.unwrap();
    let (url, table) = (server.url().replace(&port.to_string(), &meter.port.to_string()), new_table());
    let open = async || builder(&url).table(&table).connections(1).connect().await.unwrap();
    let [store, other] = [open().await, open().await];
    // The first use of a statement prepares it.
    for name in ["first", "second"] {
        record(&store, name, "done").await;
        replayed(&store, name).await;
    }
    each_is_one_exchange(&meter, &store, &other).await;
}
