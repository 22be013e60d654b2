//! `NatsKvStore` against the conformance kit: two stores on one bucket of a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_nats_kv::NatsKvStore;
use idem_test_servers::Nats;
use idem_testing::conformance::{self, Profile, Subject};

/// Runs the checks of these themes, each on its own bucket.
fn run(themes: &[&str]) {
    let nats = Arc::new(Nats::start());
    let buckets = Arc::new(AtomicUsize::new(0));
    let mut broken = Vec::new();
    let mut checks = 0;
    for check in conformance::all().iter().filter(|check| themes.contains(&check.theme())) {
        let (nats, buckets) = (nats.clone(), buckets.clone());
        checks += 1;
        let judged = check.run(|| async move {
            let bucket = format!("bucket-{}", buckets.fetch_add(1, Ordering::Relaxed));
            // Both stores are on one machine, with one clock.
            let open = async || {
                let store = NatsKvStore::builder(&nats.url(), &bucket).clock_skew(Duration::ZERO);
                store.operation_timeout(Duration::from_secs(30)).connect().await.unwrap()
            };
            let store = open().await;
            Subject::new(store, Profile::real_clock().short(Duration::from_millis(150))).handle(open().await)
        });
        broken.extend(judged.err());
    }
    println!("{checks} checks of {themes:?}");
    assert!(checks > 0, "there is no such theme");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_theme_is_in_a_test() {
    let mut themes: Vec<&str> = conformance::all().iter().map(|check| check.theme()).collect();
    themes.dedup();
    assert_eq!(themes, THEMES);
}

macro_rules! themes {
    ($($theme:ident)*) => {
        const THEMES: &[&str] = &[$(stringify!($theme)),*];
        $(#[test] fn $theme() { run(&[stringify!($theme)]); })*
    };
}

themes! {
    claim crash attempts replay fingerprints renew complete release steps doubt resolve fences expiry purge records
    results formats keys races duels listing lost outage
}
