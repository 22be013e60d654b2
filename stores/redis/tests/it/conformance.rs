//! `RedisStore` against the conformance kit: two stores on one server, as in two processes. There is one
//! server for each theme, and each check has its own scope.

use std::sync::Arc;

use idem_redis::RedisStore;
use idem_test_servers::Redis;
use idem_testing::conformance::{Profile, Subject};

use crate::support::PATIENCE;

/// Large enough for the kit's checks, and small enough to repeat them often.
const MAX_RESULT_BYTES: usize = 1 << 20;

async fn store(redis: &Redis) -> RedisStore {
    let builder = RedisStore::builder(redis.url()).max_result_bytes(MAX_RESULT_BYTES);
    builder.operation_timeout(PATIENCE).connect().await.unwrap()
}

async fn subject(redis: Arc<Redis>) -> Subject {
    Subject::new(store(&redis).await, Profile::real_clock()).handle(store(&redis).await)
}

idem_testing::conformance_suite!({
    let redis = Arc::new(Redis::start());
    move || subject(Arc::clone(&redis))
});
