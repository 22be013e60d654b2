//! How often one caller waits for the server.

use idem_test_servers::Postgres;

use crate::support::{builder, each_is_one_exchange, metered, new_table, record, replayed};

#[tokio::test(flavor = "multi_thread")]
async fn of_one_caller_a_claim_a_completion_and_a_replay_are_one_exchange_each() {
    let server = Postgres::start();
    let (meter, url) = metered(server.port(), &server.url()).await;
    let table = new_table();
    let open = async || builder(&url).table(&table).connections(1).connect().await.unwrap();
    let [store, other] = [open().await, open().await];
    // The first use of a statement prepares it.
    for name in ["first", "second"] {
        record(&store, name, "done").await;
        replayed(&store, name).await;
    }
    each_is_one_exchange(&meter, &store, &other).await;
}
