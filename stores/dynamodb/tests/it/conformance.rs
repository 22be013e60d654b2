//! `DynamoDbStore` against the conformance kit: two stores on one table of an emulator.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_dynamodb::DynamoDbStore;
use idem_test_servers::Aws;
use idem_testing::conformance::{Profile, Subject};
use support::client;

async fn subject(aws: Arc<Aws>, tables: Arc<AtomicUsize>) -> Subject {
    let name = format!("table-{}", tables.fetch_add(1, Ordering::Relaxed));
    // Both stores are on one machine, with one clock.
    let open = || {
        let store = DynamoDbStore::builder(client(&aws), &name);
        store.clock_skew(Duration::ZERO).operation_timeout(Duration::from_secs(30)).build()
    };
    let store = open();
    store.create_table().await.unwrap();
    Subject::new(store, Profile::real_clock().short(Duration::from_millis(300)).sample(60)).handle(open())
}

idem_testing::conformance_suite!({
    let (aws, tables) = (Arc::new(Aws::start()), Arc::default());
    move || subject(Arc::clone(&aws), Arc::clone(&tables))
});
