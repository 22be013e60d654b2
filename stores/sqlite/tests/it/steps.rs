//! Tests of steps, which lie beside their records.

use crate::support;

use std::path::Path;

use idem_runtime::Store;
use idem_runtime::protocol::{CompleteAnswer, RecordStepAnswer};
use idem_sqlite::SqliteStore;

use support::*;

fn steps_left(path: &Path) -> i64 {
    sqlite(path).query_row("SELECT count(*) FROM idem_steps", (), |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn steps_leave_the_file_when_their_record_is_completed_forgotten_purged_or_begins_anew() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    for end in ["completed", "forgotten", "purged", "begun anew"] {
        let key = key(end);
        let (owner, grant) = granted(&store, &key).await;
        for position in 0..3 {
            let request = recording(owner, grant.fence, position, "a step", b"value");
            assert_eq!(store.record_step(&key, &request).await.unwrap(), RecordStepAnswer::Recorded);
        }
        assert_eq!(steps_left(&path), 3, "{end}");
        let expire = format!("UPDATE idem_records SET expires_at = 1, purge_at = 1 WHERE key = '{end}'");
        match end {
            "completed" => {
                let completion = completion(owner, grant.fence, b"receipt");
                assert_eq!(store.complete(&key, &completion).await.unwrap(), CompleteAnswer::Done);
            }
            "forgotten" => assert!(store.forget(&key).await.unwrap()),
            "purged" => {
                sqlite(&path).execute(&expire, ()).unwrap();
                store.purge(100).await.unwrap();
            }
            _ => {
                sqlite(&path).execute(&expire, ()).unwrap();
                let (_, grant) = granted(&store, &key).await;
                assert_eq!(grant.attempt, 1);
                assert_eq!(store.get(&key).await.unwrap().unwrap().steps, []);
            }
        }
        assert_eq!(steps_left(&path), 0, "{end}");
    }
}

#[tokio::test]
async fn a_step_that_cannot_be_read_is_an_error_that_names_no_value() {
    let folder = folder();
    let path = folder.path().join("idem.db");
    let store = SqliteStore::open(&path).unwrap();
    let (owner, grant) = granted(&store, &key("secret-key")).await;
    let request = recording(owner, grant.fence, 0, "reserve", b"secret-value");
    store.record_step(&key("secret-key"), &request).await.unwrap();
    for change in ["UPDATE idem_steps SET step = x'ff'", "DELETE FROM idem_steps"] {
        sqlite(&path).execute(change, ()).unwrap();
        let error = store.get(&key("secret-key")).await.unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(said.contains("step") && !said.contains("secret"), "{said}");
    }
    assert!(store.forget(&key("secret-key")).await.unwrap());
}
