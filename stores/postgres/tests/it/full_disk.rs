//! `PostgresStore` on a server whose disk is full.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::CompleteAnswer;
use idem_runtime::{Store as _, StoreErrorKind};
use idem_test_servers::Postgres;

use crate::support::{completion, grant, key, noise, replayed};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error_that_loses_nothing_and_passes_when_there_is_room() {
    let server = Postgres::start();
    let builder = PostgresStore::builder(&server.url()).operation_timeout(Duration::from_secs(3));
    let store = builder.connect().await.unwrap();
    server.limit_files(Some(16 << 20));
    let mut kept = Vec::new();
    let refused = loop {
        let (name, value) = (format!("order {}", kept.len()), noise(1 << 20));
        let completion = completion(grant(&store, &name).await, value.clone());
        let mut answer = store.complete(&key(&name), &completion).await;
        while answer.as_ref().is_err_and(|error| error.is_outcome_unknown()) {
            // Rarely, the operation timeout ends during a try. So the test tries again.
            answer = store.complete(&key(&name), &completion).await;
        }
        match answer {
            Ok(answer) => assert_eq!(answer, CompleteAnswer::Done),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("could not extend file"), "{error}");
                break completion;
            }
        }
        kept.push(value);
        assert!(kept.len() < 100, "the disk is never full");
    };
    assert!(kept.len() > 5, "{}", kept.len());
    // Acknowledged results are recorded. The owner of the refused result still has its claim, so the owner
    // can complete it later.
    for (number, value) in kept.iter().enumerate() {
        assert!(replayed(&store, &format!("order {number}")).await.as_ref() == Some(value), "{number}");
    }
    let last = key(&format!("order {}", kept.len()));
    server.limit_files(None);
    assert_eq!(store.complete(&last, &refused).await.unwrap(), CompleteAnswer::Done);
}
