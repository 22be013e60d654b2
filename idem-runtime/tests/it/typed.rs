//! Tests of results that do not decode, of bodies that block their thread, and of the name of a record.

use std::time::Duration;

use idem::protocol::StoredResult;
use idem::{Error, MemoryStore, OnCrash, Operation, Store as _};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::support::{Failure, completion, crashed_worker, operation, record_key};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    currency: String,
}

/// The store with these bytes recorded for `k`.
async fn with(recorded: &'static [u8]) -> MemoryStore {
    let store = MemoryStore::new();
    let (owner, grant) = crashed_worker(&store, "k", OnCrash::Rerun).await;
    let request = completion(owner, grant, "").with_result(StoredResult::Value(recorded.into()));
    store.complete(&record_key("k"), &request).await.unwrap();
    store
}

async fn never() -> Result<Receipt, Failure> {
    panic!("the body must not run")
}

#[tokio::test]
async fn what_does_not_decode_is_undecodable_with_the_reason_and_without_the_value() {
    for (recorded, reason) in [
        (&b"\"secret\""[..], "invalid type: string, expected struct Receipt at line 1 column 8"),
        (b"99", "invalid type: integer, expected struct Receipt at line 1 column 2"),
        (b"\x06secret", "expected JSON, found format 0x06, which this version of idem does not know"),
        (b"\x01\0\xc8\0\0", "expected JSON, found a response of the HTTP layer"),
        (b"\xabid\x01secret", "expected JSON, found an encrypted result"),
    ] {
        let store = with(recorded).await;
        let failed = operation().run(&store, "k", never).await.unwrap_err();
        let Failure::Idem(error @ Error::Undecodable { reason: said, .. }) = &failed else {
            panic!("{failed:?}")
        };
        assert_eq!(said.as_ref(), reason);
        assert!(!error.to_string().contains("secret"), "{error}");
        let record = store.get(&record_key("k")).await.unwrap().unwrap();
        assert_eq!(record.result, Some(StoredResult::Value(recorded.into())), "it stays");
    }
}

#[tokio::test]
async fn a_body_that_blocks_its_thread_ends_when_it_lets_go_of_it() {
    let store = MemoryStore::new();
    let operation = Operation::new("blocking").timeout(Duration::from_millis(20));
    let block = || std::thread::sleep(Duration::from_millis(60));
    // This body awaits after it has blocked, and is dropped there.
    let awaits = || async move {
        block();
        sleep(SECOND * 60).await;
        Ok::<_, Failure>(1)
    };
    assert_eq!(operation.run(&store, "awaits", awaits).await.unwrap_err().kind(), "timed_out");
    // This body already has its result when its time is over, so the result is kept.
    let returns = || async move {
        block();
        Ok::<_, Failure>(2)
    };
    assert_eq!(operation.run(&store, "returns", returns).await.unwrap(), 2);
}

#[test]
fn a_key_or_a_setting_that_no_call_may_have_names_no_record() {
    assert!(matches!(operation().record_key(""), Err(Error::MissingKey { .. })));
    assert!(operation().ttl(Duration::ZERO).record_key("k").is_err());
}
