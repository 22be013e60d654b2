//! `RedisStore` against the conformance kit: two stores on one server, as in two processes. There is one server for
//! each theme, and each check has its own scope.

use std::collections::BTreeSet;
use std::sync::Arc;

use idem_redis::RedisStore;
use idem_test_servers::Redis;
use idem_testing::conformance::{self, Profile, Subject, Violation};

/// Large enough for the kit's checks, and small enough to repeat them often.
const MAX_RESULT_BYTES: usize = 1 << 20;

async fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).max_result_bytes(MAX_RESULT_BYTES).connect().await.unwrap()
}

const THEMES: [&str; 23] = [
    "claim",
    "crash",
    "attempts",
    "replay",
    "fingerprints",
    "renew",
    "complete",
    "release",
    "steps",
    "doubt",
    "resolve",
    "fences",
    "expiry",
    "purge",
    "records",
    "results",
    "formats",
    "keys",
    "listing",
    "races",
    "duels",
    "lost",
    "outage",
];

fn hold(theme: &str) -> Result<(), Violation> {
    let redis = Arc::new(Redis::start());
    let mut checks = 0;
    for check in conformance::all().iter().filter(|check| check.theme() == theme) {
        let redis = redis.clone();
        check.run(move || async move {
            let url = redis.url();
            Subject::new(store(&url).await, Profile::real_clock()).handle(store(&url).await)
        })?;
        checks += 1;
    }
    assert!(checks > 0, "the kit has no theme {theme}");
    Ok(())
}

macro_rules! themes {
    ($($name:ident: $theme:literal;)*) => {$(
        #[test]
        fn $name() -> Result<(), Violation> {
            hold($theme)
        }
    )*};
}

themes! {
    a_redis_store_keeps_the_rules_of_claim: "claim";
    a_redis_store_keeps_the_rules_of_crash: "crash";
    a_redis_store_keeps_the_rules_of_attempts: "attempts";
    a_redis_store_keeps_the_rules_of_replay: "replay";
    a_redis_store_keeps_the_rules_of_fingerprints: "fingerprints";
    a_redis_store_keeps_the_rules_of_renew: "renew";
    a_redis_store_keeps_the_rules_of_complete: "complete";
    a_redis_store_keeps_the_rules_of_release: "release";
    a_redis_store_keeps_the_rules_of_steps: "steps";
    a_redis_store_keeps_the_rules_of_doubt: "doubt";
    a_redis_store_keeps_the_rules_of_resolve: "resolve";
    a_redis_store_keeps_the_rules_of_fences: "fences";
    a_redis_store_keeps_the_rules_of_expiry: "expiry";
    a_redis_store_keeps_the_rules_of_purge: "purge";
    a_redis_store_keeps_the_rules_of_records: "records";
    a_redis_store_keeps_the_rules_of_results: "results";
    a_redis_store_keeps_the_rules_of_formats: "formats";
    a_redis_store_keeps_the_rules_of_keys: "keys";
    a_redis_store_keeps_the_rules_of_listing: "listing";
    a_redis_store_keeps_the_rules_of_races: "races";
    a_redis_store_keeps_the_rules_of_duels: "duels";
    a_redis_store_keeps_the_rules_of_lost: "lost";
    a_redis_store_keeps_the_rules_of_outage: "outage";
}

#[test]
fn every_theme_of_the_kit_is_here() {
    let kit: BTreeSet<_> = conformance::all().iter().map(conformance::Check::theme).collect();
    assert_eq!(kit, THEMES.into_iter().collect());
}
