//! `DynamoDbStore` against the conformance kit: two stores on one table of an emulator.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_dynamodb::DynamoDbStore;
use idem_test_servers::Aws;
use idem_testing::conformance::{self, Profile, Subject};
use support::client;

/// Runs the checks of these themes, each on its own table.
fn run(themes: &[&str]) {
    let aws = Arc::new(Aws::start());
    let tables = Arc::new(AtomicUsize::new(0));
    let mut broken = Vec::new();
    let mut checks = 0;
    for check in conformance::all().iter().filter(|check| themes.contains(&check.theme())) {
        let (aws, tables) = (aws.clone(), tables.clone());
        checks += 1;
        let judged = check.run(|| async move {
            let name = format!("table-{}", tables.fetch_add(1, Ordering::Relaxed));
            // Both stores are on one machine, with one clock.
            let open = || {
                let store = DynamoDbStore::builder(client(&aws), &name);
                store.clock_skew(Duration::ZERO).operation_timeout(Duration::from_secs(30)).build()
            };
            let store = open();
            store.create_table().await.unwrap();
            Subject::new(store, Profile::real_clock().short(Duration::from_millis(300))).handle(open())
        });
        broken.extend(judged.err());
    }
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
