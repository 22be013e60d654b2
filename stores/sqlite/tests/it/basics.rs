//! Tests of records that cannot be read.

use crate::support;

use idem_runtime::protocol::RecordStepAnswer;
use idem_runtime::{Store, StoreErrorKind};

use support::*;

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone_says_no_secret_and_can_be_forgotten() {
    let (_folder, path, store) = opened();
    let (bad, good) = (key("secret-key"), key("good"));
    complete(&store, &good, b"y").await;
    assert_eq!(format!("{store:?}"), format!("SqliteStore({path:?})"));
    for damage in [
        "UPDATE idem_records SET state = 'gone' WHERE key <> 'good'",
        "UPDATE idem_records SET owner = x'00' WHERE key <> 'good'",
        "UPDATE idem_records SET fence = -1 WHERE key <> 'good'",
        "UPDATE idem_records SET tombstone = 'x' WHERE key <> 'good'",
        "UPDATE idem_steps SET step = x'ff'",
        "DELETE FROM idem_steps",
    ] {
        let (owner, grant) = granted(&store, &bad).await;
        let step = recording(owner, grant.fence, 0, "reserve", b"secret-value");
        assert_eq!(store.record_step(&bad, &step).await.unwrap(), RecordStepAnswer::Recorded);
        sqlite(&path).execute(damage, ()).unwrap();
        // `get` reads with a reader, and `record_step` with the writer; both must report the damage.
        let (read, step, beside) =
            tokio::join!(store.get(&bad), store.record_step(&bad, &step), replayed(&store, &good));
        assert_eq!(beside, b"y");
        for error in [read.unwrap_err(), step.unwrap_err()] {
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{damage}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        assert!(store.forget(&bad).await.unwrap(), "{damage}");
    }
}
