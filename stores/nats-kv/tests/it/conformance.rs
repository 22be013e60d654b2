//! `NatsKvStore` against the conformance kit: two stores on one bucket of a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_nats_kv::NatsKvStore;
use idem_test_servers::Nats;
use idem_testing::conformance::{Profile, Subject};

async fn subject(nats: Arc<Nats>, buckets: Arc<AtomicUsize>) -> Subject {
    let bucket = format!("bucket-{}", buckets.fetch_add(1, Ordering::Relaxed));
    // Both stores are on one machine, with one clock.
    let open = async || {
        let store = NatsKvStore::builder(&nats.url(), &bucket).clock_skew(Duration::ZERO);
        store.operation_timeout(Duration::from_secs(30)).connect().await.unwrap()
    };
    let store = open().await;
    Subject::new(store, Profile::real_clock().short(Duration::from_millis(150)).sample(4))
        .handle(open().await)
}

idem_testing::conformance_suite!({
    let (nats, buckets) = (Arc::new(Nats::start()), Arc::default());
    move || subject(Arc::clone(&nats), Arc::clone(&buckets))
});
