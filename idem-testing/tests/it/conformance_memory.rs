//! `MemoryStore` against the conformance kit.

use idem_runtime::MemoryStore;
use idem_testing::conformance::{Profile, Subject};
use idem_testing::conformance_suite;

conformance_suite!(|| async { Subject::new(MemoryStore::new(), Profile::tokio_clock()) });

/// The same checks with a limit for results, where there is one to exceed.
mod with_a_limit {
    use super::*;

    conformance_suite!(|| async {
        Subject::new(MemoryStore::with_max_result_bytes(4_096), Profile::tokio_clock())
    });
}
