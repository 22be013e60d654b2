//! Operations that wait at the same moment share exchanges.

use futures_util::future::join_all;
use idem_test_servers::MariaDb;

use crate::support::{builder, grant, metered};

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_new_keys_that_wait_together_are_one_exchange() {
    let server = MariaDb::start();
    let (meter, url) = metered(server.port(), &server.url()).await;
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
