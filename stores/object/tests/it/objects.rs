//! Tests of what the stores promise beyond the protocol: the conditions of writes, what a purge leaves,
//! failures.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use idem_object::{BucketStore, FolderStore};
use idem_runtime::{Store, StoreErrorKind};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use crate::requests::*;

#[tokio::test]
async fn an_object_store_without_conditional_writes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let error = BucketStore::connect(objects, "records").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}

#[tokio::test]
async fn a_purge_empties_an_expired_object_which_can_be_claimed_again() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let builder = BucketStore::builder(objects.clone(), "records").clock_skew(Duration::ZERO);
    let store = builder.connect().await.unwrap();
    let first = granted_as(&store, &key("over"), &short_claim()).await;
    granted(&store, &key("live")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(store.purge(100).await.unwrap(), 0);
    let files: Vec<_> = objects.list(None).try_collect().await.unwrap();
    let mut sizes: Vec<_> = files.iter().map(|meta| (meta.location.to_string(), meta.size == 0)).collect();
    sizes.sort_unstable();
    let names = [("records/test/live".to_owned(), false), ("records/test/over".to_owned(), true)];
    assert_eq!(sizes, names);
    let (_, again) = granted(&store, &key("over")).await;
    assert!(again.fence > first.fence && again.attempt == 1);
}

#[tokio::test]
async fn a_lock_that_another_process_holds_makes_a_write_wait_and_then_fail() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    granted(&store, &key("a")).await;
    let locks: Vec<_> =
        fs::read_dir(folder.path().join(".locks")).unwrap().map(|lock| lock.unwrap().path()).collect();
    let locks: Vec<_> = locks.iter().map(|lock| fs::File::open(lock).unwrap()).collect();
    locks.iter().for_each(|lock| lock.lock().unwrap());
    let error = store.forget(&key("a")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // A read needs no lock.
    assert!(store.get(&key("a")).await.unwrap().is_some());
    drop(locks);
    assert!(store.forget(&key("a")).await.unwrap());
}

#[tokio::test]
async fn a_purge_of_a_folder_leaves_no_file_of_an_expired_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    granted_as(&store, &key("over"), &short_claim()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(fs::read_dir(folder.path().join("test")).unwrap().count(), 0);
    granted(&store, &key("over")).await;
}
