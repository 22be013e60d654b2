//! Decisions on stores that repeat requests, refuse steps, or hold leases that have expired.

use std::time::Duration;

use idem_core::listing::{Cursor, List, Page};
use idem_core::protocol::{
    Answer, Claim, ClaimAnswer, OnCrash, Owner, Record, Release, ReleaseCause, Request, State, StoredResult,
    Verdict,
};
use idem_core::{Key, RecordKey, Scope, Store, StoreError};
use idem_operate_kit::act::{self, Decision, Shown};
use idem_operate_kit::audit::{self, Trail};
use idem_operate_kit::figures::look;
use idem_operate_kit::text::is_lapsed;
use idem_operate_kit::walk::{TRAIL, Walk};
use idem_operate_kit::{Access, Kind};
use idem_runtime::{DynStore, MemoryStore};

const DAY: Duration = Duration::from_secs(86_400);

/// A store that applies each decision twice, as if the answer to the first request were lost. It can also
/// refuse steps, or return a second page whose time is an hour later.
#[derive(Clone)]
struct Faulty {
    inner: MemoryStore,
    refuses_steps: bool,
    is_slow: bool,
}

impl Faulty {
    fn new() -> Self {
        Self { inner: MemoryStore::new(), refuses_steps: false, is_slow: false }
    }
}

impl Store for Faulty {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        match request {
            Request::RecordStep(_) if self.refuses_steps => {
                return Err(StoreError::configuration("no room for steps"));
            }
            Request::Resolve(_) => drop(self.inner.apply(key, request.clone()).await?),
            _ => {}
        }
        self.inner.apply(key, request).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.inner.forget(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let mut page = self.inner.list(request).await?;
        if self.is_slow {
            match request.after {
                None => page.next = Some(Cursor::from_bytes(Vec::new())),
                Some(_) => page = Page::new(page.now.after(Duration::from_secs(3_600))),
            }
        }
        Ok(page)
    }
}

fn key(text: &str) -> RecordKey {
    RecordKey::new(Scope::new("shop.charge").unwrap(), Key::new(text).unwrap())
}

fn trail() -> Trail {
    Trail { by: "mara".to_owned(), reason: None }
}

fn result() -> StoredResult {
    StoredResult::Value("7".into())
}

/// Claims a key under `in_doubt`, with a lease of one second.
async fn claimed(store: &Faulty, key: &RecordKey) -> Release {
    let claim = Claim::new(Owner::random(), Duration::from_secs(1), DAY).with_on_crash(OnCrash::InDoubt);
    let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await.unwrap() else { panic!("not granted") };
    Release::new(claim.owner, grant.fence, ReleaseCause::Abandoned)
}

async fn settle(store: &Faulty, key: &RecordKey, decision: &Decision) -> idem_operate_kit::Result<()> {
    let access = Access::new(store.clone());
    let (shown, _) = act::look(&access, key).await?.unwrap();
    act::settle(&access, &trail(), key, shown, decision).await
}

async fn state(store: &Faulty, key: &RecordKey) -> Option<State> {
    store.get(key).await.unwrap().map(|record| record.state)
}

#[tokio::test]
async fn a_decision_that_the_store_repeats_is_done_and_the_trail_says_so() {
    let store = Faulty::new();
    for (name, decision, left) in [
        ("recorded", Decision::Record(Verdict::Completed, result()), Some(State::Completed)),
        ("failed", Decision::Record(Verdict::Failed, result()), Some(State::Failed)),
        ("released", Decision::Release, Some(State::Released)),
        ("forgotten", Decision::Forget, None),
    ] {
        let key = key(name);
        let release = claimed(&store, &key).await;
        store.release(&key, &release).await.unwrap();
        settle(&store, &key, &decision).await.unwrap();
        assert_eq!(state(&store, &key).await, left, "{name}");
    }
    let entries = audit::entries(&Access::new(store), None).await.unwrap();
    assert_eq!(entries.len(), 4);
    assert!(entries.iter().all(|entry| entry.text("outcome") == "done"));
}

#[tokio::test]
async fn a_decision_of_another_person_is_not_taken_for_this_one() {
    let store = Faulty::new();
    let access = Access::new(store.clone());
    let key = key("order-1");
    let release = claimed(&store, &key).await;
    store.release(&key, &release).await.unwrap();
    let (shown, _) = act::look(&access, &key).await.unwrap().unwrap();
    settle(&store, &key, &Decision::Record(Verdict::Completed, result())).await.unwrap();
    for decision in [
        Decision::Record(Verdict::Completed, StoredResult::Value("8".into())),
        Decision::Record(Verdict::Failed, result()),
        Decision::Release,
        Decision::Forget,
    ] {
        let refused = act::settle(&access, &trail(), &key, shown, &decision).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Refused, "{}", decision.word());
    }
    assert_eq!(store.get(&key).await.unwrap().unwrap().result, Some(result()));
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_key_is_left_in_flight_where_the_trail_cannot_be_written() {
    let store = Faulty { refuses_steps: true, ..Faulty::new() };
    let key = key("order-1");
    claimed(&store, &key).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(settle(&store, &key, &Decision::Release).await.is_err());
    assert_eq!(state(&store, &key).await, Some(State::InFlight));
}

#[tokio::test(start_paused = true)]
async fn no_result_is_recorded_over_a_lapsed_claim_and_the_claim_stays() {
    let store = Faulty::new();
    let key = key("order-1");
    claimed(&store, &key).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    let access = Access::new(store.clone());
    let decision = Decision::Record(Verdict::Completed, result());
    let refused = act::settle(&access, &trail(), &key, Shown::Absent(DAY), &decision).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Refused);
    assert_eq!(state(&store, &key).await, Some(State::InFlight));
}

#[tokio::test]
async fn the_trail_cannot_be_changed() {
    let store = Faulty::new();
    let release = claimed(&store, &key("order-1")).await;
    store.release(&key("order-1"), &release).await.unwrap();
    settle(&store, &key("order-1"), &Decision::Release).await.unwrap();
    let page = store.list(&List::default().with_scope(Scope::new(TRAIL).ok())).await.unwrap();
    let entry = &page.records[0].key;
    assert_eq!(settle(&store, entry, &Decision::Forget).await.unwrap_err().kind(), Kind::Refused);
    assert_eq!(state(&store, entry).await, Some(State::Completed));
    let access = Access::new(store.clone());
    let forged = RecordKey::new(Scope::new(TRAIL).unwrap(), Key::new("forged").unwrap());
    let decision = Decision::Record(Verdict::Completed, result());
    let refused = act::settle(&access, &trail(), &forged, Shown::Absent(DAY), &decision).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Refused);
    assert_eq!(state(&store, &forged).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_judged_by_the_time_when_its_record_was_read() {
    let store = Faulty { is_slow: true, ..Faulty::new() };
    claimed(&store, &key("order-1")).await;
    let store = DynStore::new(store);
    let look = look(Walk::new(&store, Vec::new(), None), 9, |_| true).await.unwrap();
    let (listed, now) = &look.open[0];
    assert!(!is_lapsed(&listed.record, *now));
    assert!(is_lapsed(&listed.record, look.counted.now));
}
