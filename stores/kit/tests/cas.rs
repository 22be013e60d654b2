//! Tests of [`CasStore`] on objects in memory. In some tests, writes and answers are lost.

#![cfg(feature = "cas")]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use idem_core::inspection::Inspection;
use idem_core::listing::List;
use idem_core::protocol::{ClaimAnswer, CompleteAnswer, Resolution, ResolveAnswer, Seen};
use idem_core::{Store, StoreError, StoreErrorKind};
use idem_store_kit::cas::{CasSettings, CasStore, CompareAndSwap, Listing, ObjectName, Put, Version};
use idem_testing::conformance::{Profile, Subject, run_theme};
use requests::*;

mod requests;

/// Objects in memory. Counts requests, and loses one in `every` requests if that request is a write.
#[derive(Clone, Default)]
struct Map(Arc<Objects>);

#[derive(Default)]
struct Objects {
    objects: Mutex<BTreeMap<(String, String), (Bytes, u64)>>,
    /// The last revision.
    revisions: AtomicUsize,
    requests: AtomicUsize,
    /// Of this many requests in a row, the second is lost if it is a write. With 0, no request is lost.
    every: usize,
    /// Whether a lost write is applied nevertheless.
    applies: bool,
    /// Whether a refused write returns the newest version of the object.
    returns: bool,
}

impl Map {
    fn requests(&self) -> usize {
        self.0.requests.swap(0, Ordering::SeqCst)
    }
}

fn place(name: &ObjectName) -> (String, String) {
    (name.scope.clone(), name.key.clone())
}

impl CompareAndSwap for Map {
    type Revision = u64;

    async fn get(&self, name: &ObjectName) -> Result<Option<Version<u64>>, StoreError> {
        self.0.requests.fetch_add(1, Ordering::SeqCst);
        let object = self.0.objects.lock().unwrap().get(&place(name)).cloned();
        Ok(object.map(|(bytes, revision)| Version { bytes, revision }))
    }

    async fn put(
        &self,
        name: &ObjectName,
        bytes: Bytes,
        seen: Option<&u64>,
        _keep: Option<Duration>,
    ) -> Result<Put<u64>, StoreError> {
        let number = self.0.requests.fetch_add(1, Ordering::SeqCst);
        let is_lost = self.0.every > 0 && number % self.0.every == 1;
        if is_lost && !self.0.applies {
            return Err(StoreError::outcome_unknown("the request is lost"));
        }
        let mut objects = self.0.objects.lock().unwrap();
        let object = objects.get(&place(name));
        if object.map(|(_, revision)| revision) != seen {
            let version =
                object.map(|(bytes, revision)| Version { bytes: bytes.clone(), revision: *revision });
            return Ok(Put::Refused(version.filter(|_| self.0.returns)));
        }
        let revision = self.0.revisions.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        objects.insert(place(name), (bytes, revision));
        if is_lost {
            Err(StoreError::outcome_unknown("the answer is lost"))
        } else {
            Ok(Put::Written(revision))
        }
    }

    async fn delete(&self, name: &ObjectName, seen: &u64) -> Result<bool, StoreError> {
        let mut objects = self.0.objects.lock().unwrap();
        let is_there = objects.get(&place(name)).is_some_and(|(_, revision)| revision == seen);
        if is_there {
            objects.remove(&place(name));
        }
        Ok(is_there)
    }

    async fn list(
        &self,
        scope: Option<&str>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Listing<u64>, StoreError> {
        let objects = self.0.objects.lock().unwrap();
        let path = |(scope, key): &(String, String)| format!("{scope}/{key}").into_bytes();
        let mut behind = objects.iter().filter(|(name, _)| {
            scope.is_none_or(|scope| name.0 == scope) && after.is_none_or(|after| &*path(name) > after)
        });
        let page: Vec<_> = behind.by_ref().take(limit).collect();
        let next = behind.next().and_then(|_| page.last().map(|(name, _)| path(name)));
        let versions = page
            .into_iter()
            .map(|(_, (bytes, revision))| Version { bytes: bytes.clone(), revision: *revision });
        Ok(Listing { versions: versions.collect(), next })
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        Ok(Inspection::of("memory"))
    }

    fn max_bytes(&self) -> usize {
        1 << 20
    }
}

#[derive(Clone)]
struct MapStore(Arc<CasStore<Map>>);

idem_store_kit::store_by!(MapStore, 0);

fn store(map: &Map) -> MapStore {
    let settings = CasSettings { clock_skew: Duration::ZERO, ..CasSettings::default() };
    MapStore(CasStore::new(map.clone(), settings))
}

/// Two stores on the same objects. Every third request is lost if it is a write.
async fn subject(returns: bool) -> Subject {
    let map = Map(Arc::new(Objects { every: 3, returns, ..Objects::default() }));
    Subject::new(store(&map), Profile::real_clock().short(Duration::from_millis(200))).handle(store(&map))
}

mod with_lost_writes {
    idem_testing::conformance_suite!(|| super::subject(false));
}

/// Runs only the themes that make many writes.
#[test]
fn lost_writes_change_nothing_where_a_refusal_returns_the_version() {
    for theme in ["transitions", "histories", "races", "duels"] {
        run_theme(theme, || subject(true)).unwrap();
    }
}

#[tokio::test]
async fn a_lease_is_over_only_when_it_is_over_by_every_clock() {
    let (skew, begin) = (Duration::from_millis(200), Instant::now());
    let settings = CasSettings { clock_skew: skew, ..CasSettings::default() };
    let store = MapStore(CasStore::new(Map::default(), settings));
    granted_as(&store, &key("a"), &claim_request().with_lease(Duration::from_millis(1))).await;
    while let ClaimAnswer::Busy { retry_after } = store.claim(&key("a"), &claim_request()).await.unwrap() {
        tokio::time::sleep(retry_after).await;
    }
    assert!(begin.elapsed() >= skew, "{:?}", begin.elapsed());
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().attempt, 2);
}

#[tokio::test]
async fn steps_of_a_claim_do_not_make_its_lease_longer() {
    let map = Map::default();
    let settings = CasSettings { clock_skew: Duration::from_secs(1), ..CasSettings::default() };
    let open = || MapStore(CasStore::new(map.clone(), settings));
    let (one, another) = (open(), open());
    let (owner, grant) = granted(&one, &key("a")).await;
    let before = one.get(&key("a")).await.unwrap().unwrap();
    // The first handle remembers the record that it wrote, and the second handle reads that record.
    for (position, store) in (0_u32..).zip([&one, &one, &another, &another]) {
        record_step(store, &key("a"), &recording(owner, grant.fence, position, &position.to_string(), b"1"))
            .await;
    }
    let after = one.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(after.steps.len(), 4);
    assert_eq!((after.lease_until, after.expires_at), (before.lease_until, before.expires_at));
}

#[tokio::test]
async fn a_fresh_call_is_two_requests_and_each_step_and_renewal_one_more() {
    for (returns, refused) in [(false, 2), (true, 1)] {
        let map = Map(Arc::new(Objects { returns, ..Objects::default() }));
        let (one, another) = (store(&map), store(&map));
        let (owner, grant) = granted(&one, &key("a")).await;
        assert_eq!(map.requests(), 1, "claim");
        record_step(&one, &key("a"), &recording(owner, grant.fence, 0, "s", b"1")).await;
        assert_eq!(map.requests(), 1, "step");
        renew(&one, &key("a"), owner, grant.fence).await;
        assert_eq!(map.requests(), 1, "renewal");
        assert!(matches!(
            another.claim(&key("a"), &claim_request()).await.unwrap(),
            ClaimAnswer::Busy { .. }
        ));
        assert_eq!(map.requests(), refused, "busy");
        finish(&one, &key("a"), owner, grant.fence, b"7").await;
        assert_eq!(map.requests(), 1, "result");
        for (store, requests) in [(&one, 1), (&another, refused), (&another, 1)] {
            assert_eq!(replayed(store, &key("a")).await, b"7");
            assert_eq!(map.requests(), requests, "replay");
        }
        let (owner, grant) = granted(&one, &key("released")).await;
        map.requests();
        release(&one, &key("released"), owner, grant.fence).await;
        assert_eq!(map.requests(), 1, "release");
        granted_as(&one, &key("lapsed"), &claim_request().with_lease(Duration::from_millis(1))).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        map.requests();
        for name in ["released", "lapsed"] {
            assert_eq!(granted(&another, &key(name)).await.1.attempt, 2);
            assert_eq!(map.requests(), refused + 1, "a claim of the {name} key by another");
        }
    }
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_answered_as_it_was_applied() {
    let map = Map(Arc::new(Objects { every: 3, applies: true, ..Objects::default() }));
    let (one, another) = (store(&map), store(&map));
    for number in 0..30 {
        let key = key(&number.to_string());
        let (owner, grant) = granted(&one, &key).await;
        assert_eq!(grant.attempt, 1);
        record_step(&one, &key, &recording(owner, grant.fence, 0, "s", b"1")).await;
        renew(&one, &key, owner, grant.fence).await;
        if number % 2 == 0 {
            finish(&one, &key, owner, grant.fence, b"7").await;
            assert_eq!(replayed(&another, &key).await, b"7");
        } else {
            release(&one, &key, owner, grant.fence).await;
            assert_eq!(granted(&another, &key).await.1.attempt, 2);
        }
        assert!(one.forget(&key).await.unwrap());
    }
}

/// A clock may be behind by the full `clock_skew`. If a purge deleted the fence too early, the process with
/// that clock would give the next claim a lower fence.
#[tokio::test]
async fn a_purge_leaves_the_fence_of_a_forgotten_record_until_every_clock_is_past_it() {
    let map = Map::default();
    let settings = CasSettings { clock_skew: Duration::from_secs(60), ..CasSettings::default() };
    let store = MapStore(CasStore::new(map.clone(), settings));
    for name in ["seen", "forgotten"] {
        granted(&store, &key(name)).await;
    }
    let seen = Seen::of(&store.get(&key("seen")).await.unwrap().unwrap());
    let resolved = store.resolve(&key("seen"), &Resolution::ForgetSeen(seen)).await.unwrap();
    assert_eq!(resolved, ResolveAnswer::Resolved);
    assert!(store.forget(&key("forgotten")).await.unwrap());
    assert!(!store.forget(&key("forgotten")).await.unwrap());
    assert_eq!(store.purge(100).await.unwrap(), 0);
    assert_eq!(map.0.objects.lock().unwrap().len(), 2);
    assert!(store.list(&List::default()).await.unwrap().records.is_empty());
}

#[tokio::test]
async fn forgetting_an_expired_record_deletes_its_result() {
    let map = Map::default();
    let (store, secret) = (store(&map), Bytes::from("a secret"));
    let (owner, grant) = granted(&store, &key("a")).await;
    let done = completion(owner, grant.fence, &secret).with_ttl(Duration::from_millis(1));
    assert_eq!(store.complete(&key("a"), &done).await.unwrap(), CompleteAnswer::Done);
    let has_secret = || {
        let objects = map.0.objects.lock().unwrap();
        objects.values().any(|(bytes, _)| bytes.windows(secret.len()).any(|part| part == secret))
    };
    assert!(has_secret());
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(!store.forget(&key("a")).await.unwrap());
    assert!(!has_secret());
}

#[tokio::test]
async fn an_object_that_is_no_record_is_named_by_digest_and_stays() {
    for returns in [false, true] {
        let map = Map(Arc::new(Objects { returns, ..Objects::default() }));
        let store = store(&map);
        granted(&store, &key("a")).await;
        let name = ObjectName::of(&key("a"));
        // The object of another key, an object of a later version, and an object that was cut.
        let other = map.0.objects.lock().unwrap()[&place(&name)].0.clone();
        let later = [&[9], &other[1..]].concat();
        for (object, wrong) in [("other", other.clone()), ("later", later.into()), ("cut", other.slice(..60))]
        {
            map.0.objects.lock().unwrap().insert(place(&ObjectName::of(&key(object))), (wrong, 77));
            let error = store.claim(&key(object), &claim_request()).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{error}");
            assert_eq!(map.0.objects.lock().unwrap()[&place(&ObjectName::of(&key(object)))].1, 77);
        }
        // A walk names each unreadable object once, by the key in its bytes.
        let page = store.list(&List::default()).await.unwrap();
        assert_eq!((page.records.len(), page.unreadable.len()), (2, 2));
    }
}

#[test]
fn two_keys_have_two_names_of_plain_characters() {
    let short = ["a", "A", "=", "=3D", "a/b", "a.b", "ü", "\0", "=s"].map(str::to_owned);
    let long = [("k", 201), ("k", 202), ("/", 300)].map(|(text, count)| text.repeat(count));
    let texts = [&short[..], &long].concat();
    let mut names: Vec<String> = texts.iter().map(|text| ObjectName::of(&key(text)).key).collect();
    assert!(names.iter().all(|name| name.len() <= 200 && !name.is_empty()));
    // Some file systems treat two names as one if the names differ only in upper and lower case.
    names.iter_mut().for_each(|name| name.make_ascii_lowercase());
    assert!(
        names
            .iter()
            .flat_map(|name| name.bytes())
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte))
    );
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), texts.len());
}
