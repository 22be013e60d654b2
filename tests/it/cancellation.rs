//! Tests of what happens to the key when the caller goes away. The simulation tests what happens to the key
//! after a panic.

use crate::support;

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use idem::MemoryStore;
use idem::protocol::State;
use idem_test_servers::until;
use support::{Failure, operation, state};
use tokio::sync::Notify;

#[tokio::test(start_paused = true)]
async fn a_dropped_call_drops_its_body_before_it_releases_its_key() {
    /// Reads the key's state when the body's values are dropped.
    struct Look(MemoryStore, std::sync::Arc<std::sync::Mutex<Option<State>>>);
    impl Drop for Look {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = state(&self.0).now_or_never().unwrap();
        }
    }
    let (store, seen) = (MemoryStore::new(), std::sync::Arc::default());
    let look = Look(store.clone(), std::sync::Arc::clone(&seen));
    let call = operation().run(&store, "k", || async move {
        let _look = look;
        std::future::pending::<Result<usize, Failure>>().await
    });
    assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    assert_eq!(*seen.lock().unwrap(), Some(State::InFlight));
    assert_eq!(state(&store).await, Some(State::Released));
}

#[test]
fn a_call_dropped_after_its_runtime_was_shut_down_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let store = idem::SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Notify::new();
    let mut call = Box::pin(operation().run(&store, "k", || async {
        begun.notify_one();
        std::future::pending::<Result<usize, Failure>>().await
    }));
    runtime.block_on(async {
        assert!(matches!(select(call.as_mut(), pin!(begun.notified())).await, Either::Right(_)));
    });
    drop(runtime);
    drop(call);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The drop has begun the release. The store shows the new state once the release is on disk.
    until("the key is released", || runtime.block_on(state(&store)) == Some(State::Released));
}

#[test]
fn a_call_dropped_outside_its_runtime_still_releases_its_key() {
    let store = MemoryStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut call = Box::pin(
        operation().run(&store, "k", || async { std::future::pending::<Result<usize, Failure>>().await }),
    );
    runtime.block_on(async {
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
    });
    drop(call);
    assert_eq!(runtime.block_on(state(&store)), Some(State::Released));
}
