//! `MemoryStore` against the conformance kit.

use idem_runtime::MemoryStore;
use idem_testing::conformance::{Profile, Subject, Violation, all};
use idem_testing::conformance_suite;

conformance_suite!(|| async { Subject::new(MemoryStore::new(), Profile::tokio_clock()) });

#[test]
fn with_a_limit_results_and_steps_keep_to_it() -> Result<(), Violation> {
    for check in all().iter().filter(|check| matches!(check.theme(), "results" | "steps")) {
        check.run(|| async {
            Subject::new(MemoryStore::with_max_result_bytes(4_096), Profile::tokio_clock())
        })?;
    }
    Ok(())
}
