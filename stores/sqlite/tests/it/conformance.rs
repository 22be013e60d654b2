//! `SqliteStore` against the conformance kit: two stores on one file, as in two processes.

use idem_sqlite::SqliteStore;
use idem_testing::conformance::{Profile, Subject};
use idem_testing::conformance_suite;

/// Large enough for the kit's checks, and small enough to repeat them often.
const MAX_RESULT_BYTES: usize = 1 << 20;

async fn subject() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    let open = || SqliteStore::builder(&path).max_result_bytes(MAX_RESULT_BYTES).open().unwrap();
    Subject::new(open(), Profile::real_clock()).handle(open()).keep(folder)
}

conformance_suite!(subject);
