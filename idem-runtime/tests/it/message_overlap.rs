//! Handlers that claim before their body may run: `Consumer::overlap`.

use crate::message_support;

use std::cell::Cell;
use std::time::Duration;

use futures_util::stream;
use idem_runtime::message::Consumer;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, Owner, Release, ReleaseCause, State, StoredResult, Verdict,
};
use idem_runtime::{Error, MemoryStore, OnCrash, Operation, Store};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

use message_support::{Broker, Failure, LEASE, Message, SCOPE, Shop, key, told};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One body at a time, and so many handlers beside it.
fn overlapping(handlers: usize) -> Consumer {
    Consumer::new().concurrency(1).overlap(handlers)
}

async fn state(store: &MemoryStore, order: &str) -> Option<State> {
    store.get(&key(order)).await.unwrap().map(|record| record.state)
}

#[tokio::test(start_paused = true)]
async fn claims_results_and_acknowledgements_go_on_while_other_bodies_run() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.always(OperationKind::Claim, Fault::DelayBefore(seconds(1)));
    store.always(OperationKind::Complete, Fault::DelayBefore(seconds(1)));
    let (shop, broker) = (Shop::on(store), Broker::new(&memory));
    let messages = broker.messages(&["1 ok", "2 ok", "3 ok", "4 ok", "5 ok", "6 ok"]);
    let summary = overlapping(3).run(stream::iter(messages), |m| shop.ship(m)).await;
    // From the second second on there is always one body, and never two.
    let expected = [(3, "ack 1"), (4, "ack 2"), (5, "ack 3"), (6, "ack 4"), (7, "ack 5"), (8, "ack 6")];
    assert_eq!(broker.told(), told(&expected));
    assert_eq!(shop.most.get(), 1);
    assert_eq!(*broker.recorded.borrow(), [Some(State::Completed); 6], "acknowledged before it was recorded");
    assert_eq!(summary.acknowledged, 6);
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_bodies_and_overlap_together_also_of_many_that_are_held() {
    let (now, most) = (&Cell::new(0), &Cell::new(0));
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let texts: Vec<String> = (0..20).map(|order| format!("{order} ok")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let messages = stream::iter(broker.messages(&texts));
    let consumer = Consumer::new().concurrency(2).overlap(3).prefetch(10);
    let summary = consumer.run(messages, |_| async {
        now.set(now.get() + 1);
        most.set(most.get().max(now.get()));
        sleep(seconds(1)).await;
        now.set(now.get() - 1);
        Ok::<_, Failure>(())
    });
    assert_eq!((summary.await.acknowledged, most.get()), (20, 5));
    assert_eq!(Consumer::new().concurrency(2).overlap(3).prefetch(4).capacity(), 5);
    assert_eq!(Consumer::new().concurrency(2).overlap(3).prefetch(10).capacity(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_body_needs_no_place_of_its_own() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let (outer, inner) = (Operation::new("outer"), Operation::new("inner"));
    let handler = |m: &Message| {
        let (outer, inner, store, order) = (&outer, &inner, &shop.store, m.order.clone());
        async move {
            let within = order.clone();
            let body = async move || inner.run(store, within, async || Ok::<_, Error>(1)).await;
            outer.run(store, order, body).await
        }
    };
    let consumer = overlapping(1).run(stream::iter(broker.messages(&["1 ok", "2 ok"])), handler);
    assert_eq!(timeout(seconds(60), consumer).await.unwrap().acknowledged, 2);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_one_handler_share_its_place_and_may_wait_for_each_other() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let operation = Operation::new("both");
    let handler = |m: &Message| {
        let (operation, store, order) = (&operation, &shop.store, m.order.clone());
        async move {
            let both = Barrier::new(2);
            let one = |name| {
                operation.run(store, (order.clone(), name), async || Ok(both.wait().await.is_leader()))
            };
            let (a, b) = tokio::join!(one("a"), one("b"));
            Ok::<_, Error>(a? ^ b?)
        }
    };
    let texts = ["1 ok", "2 ok", "3 ok"];
    let consumer = overlapping(2).run(stream::iter(broker.messages(&texts)), handler);
    assert_eq!(timeout(seconds(60), consumer).await.unwrap().acknowledged, 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_crash_would_settle_for_good_is_not_claimed_before_its_body_may_run() {
    let operation = || Operation::new(SCOPE);
    let cautious = [operation().on_crash(OnCrash::InDoubt), operation().max_attempts(3)];
    let ahead = [(operation(), Some(State::InFlight))];
    for (operation, claimed) in cautious.map(|operation| (operation, None)).into_iter().chain(ahead) {
        let shop = Shop::of(MemoryStore::new(), operation);
        let broker = Broker::new(&shop.store);
        let messages = stream::iter(broker.messages(&["1 5", "2 ok"]));
        let looking = async {
            sleep(seconds(2)).await;
            state(&shop.store, "2").await
        };
        let (summary, found) = tokio::join!(overlapping(1).run(messages, |m| shop.ship(m)), looking);
        assert_eq!((found, summary.acknowledged, shop.most.get()), (claimed, 2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_late_gives_its_place_back_before_its_result_is_recorded() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.always(OperationKind::Complete, Fault::DelayBefore(seconds(5)));
    let operation = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    let (shop, broker) = (Shop::of(store, operation), Broker::new(&memory));
    let messages = broker.messages(&["1 ok", "2 ok", "3 ok"]);
    overlapping(2).run(stream::iter(messages), |m| shop.ship(m)).await;
    assert_eq!(broker.told(), told(&[(6, "ack 1"), (7, "ack 2"), (8, "ack 3")]));
}

#[tokio::test(start_paused = true)]
async fn only_the_first_of_a_group_is_claimed() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = stream::iter(broker.messages(&["a1 5 a", "a2 ok a", "b1 ok b"]));
    let looking = async {
        sleep(seconds(2)).await;
        (state(&shop.store, "a2").await, state(&shop.store, "b1").await)
    };
    let (_, found) = tokio::join!(overlapping(5).run(messages, |m| shop.ship(m)), looking);
    assert_eq!(found, (None, Some(State::InFlight)));
    let ran: Vec<String> = shop.ran().into_iter().filter(|order| order.starts_with('a')).collect();
    assert_eq!(ran, ["a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_what_waits_for_its_body_with_its_key_free_and_its_attempt_uncounted() {
    for (operation, attempts) in
        [(Operation::new(SCOPE), Some(0)), (Operation::new(SCOPE).on_crash(OnCrash::InDoubt), None)]
    {
        let memory = MemoryStore::new();
        let store = FaultStore::new(memory.clone());
        store.always(OperationKind::Release, Fault::DelayBefore(seconds(1)));
        let (shop, broker) = (Shop::of(store, operation), Broker::new(&memory));
        let messages = broker.endless(&["1 9", "2 ok", "3 ok a", "4 ok a"]);
        let summary =
            overlapping(2).prefetch(4).run_until(sleep(seconds(2)), messages, |m| shop.ship(m)).await;
        let at = if attempts.is_some() { 3 } else { 2 };
        let mut heard = broker.told();
        heard.sort();
        assert_eq!(heard, told(&[(at, "back 2"), (at, "back 3"), (at, "back 4"), (9, "ack 1")]));
        assert_eq!((summary.acknowledged, summary.given_back), (1, 3));
        assert_eq!(shop.ran(), ["1"]);
        let record = memory.get(&key("2")).await.unwrap();
        assert_eq!(
            record.map(|record| (record.state, record.attempt)),
            attempts.map(|n| (State::Released, n))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_first_body_has_run_may_wait_for_its_second_at_the_shutdown() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let operation = Operation::new("twice");
    let handler = |m: &Message| {
        let (operation, store, order) = (&operation, &shop.store, m.order.clone());
        async move {
            let one = |name| {
                operation.run(store, (order.clone(), name), async || {
                    sleep(seconds(3)).await;
                    Ok::<_, Error>(())
                })
            };
            one("a").await?;
            one("b").await
        }
    };
    // The first body of 1 until 3 s, that of 2 until 6 s. Then the second of 1 begins, which waits since 3 s.
    let messages = broker.endless(&["1 ok", "2 ok"]);
    overlapping(1).run_until(sleep(seconds(4)), messages, handler).await;
    assert_eq!(broker.told(), told(&[(9, "ack 1"), (12, "ack 2")]));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_body_keeps_its_lease() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = stream::iter(broker.messages(&["1 100", "2 ok"]));
    let stealing = async {
        sleep(seconds(70)).await;
        shop.store.claim(&key("2"), &Claim::new(Owner::random(), LEASE, LEASE)).await.unwrap()
    };
    let (_, answer) = tokio::join!(overlapping(1).run(messages, |m| shop.ship(m)), stealing);
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
    assert_eq!(broker.told(), told(&[(100, "ack 1"), (101, "ack 2")]));
}

/// Takes the claim of this order from whoever holds it.
async fn steal(store: &MemoryStore, order: &str) -> (Owner, idem_runtime::protocol::Grant) {
    let held = store.get(&key(order)).await.unwrap().unwrap();
    let release = Release::new(held.owner, held.fence, ReleaseCause::Unused);
    store.release(&key(order), &release).await.unwrap();
    let owner = Owner::random();
    match store.claim(&key(order), &Claim::new(owner, LEASE, seconds(3600))).await.unwrap() {
        ClaimAnswer::Granted(grant) => (owner, grant),
        other => panic!("not granted: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_loses_its_key_while_it_waits_runs_no_body() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = stream::iter(broker.messages(&["1 100", "2 ok", "3 ok"]));
    let stealing = async {
        sleep(seconds(5)).await;
        let (owner, grant) = steal(&shop.store, "2").await;
        let result = StoredResult::Value(r#""from elsewhere""#.into());
        let request = Complete::new(owner, grant.fence, Verdict::Completed, result, seconds(3600));
        shop.store.complete(&key("2"), &request).await.unwrap();
        steal(&shop.store, "3").await;
    };
    let (summary, ()) = tokio::join!(overlapping(2).run(messages, |m| shop.ship(m)), stealing);
    let (early, late): (Vec<_>, Vec<_>) = broker.told().into_iter().partition(|(at, _)| *at < 100);
    // Of the one the result is there, the other is in flight elsewhere.
    let early: Vec<&str> = early.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(early, ["ack 2", "retry 3 1s"]);
    assert_eq!(late, told(&[(100, "ack 1")]));
    assert_eq!((shop.ran(), summary.replayed), (vec!["1".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn no_body_starts_on_a_lease_that_may_have_ended_while_it_waited() {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.always(OperationKind::Renew, Fault::FailBefore);
    let (shop, broker) = (Shop::on(store), Broker::new(&memory));
    let messages = stream::iter(broker.messages(&["1 60", "2 ok"]));
    let stealing = async {
        sleep(seconds(45)).await;
        let claim = Claim::new(Owner::random(), seconds(600), seconds(3600));
        memory.claim(&key("2"), &claim).await.unwrap()
    };
    let (summary, answer) = tokio::join!(overlapping(1).run(messages, |m| shop.ship(m)), stealing);
    assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
    assert_eq!(shop.ran(), ["1"]);
    // The store does not answer about the claim: the message is held, and then in flight elsewhere.
    assert_eq!((summary.acknowledged, summary.held, summary.retried), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn bodies_that_run_unprotected_or_in_their_own_tasks_keep_to_the_limit() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Fault::FailBefore);
    let (shop, broker) =
        (Shop::of(store, Operation::new(SCOPE).fail_open()), Broker::new(&MemoryStore::new()));
    let messages = stream::iter(broker.messages(&["1 ok", "2 ok", "3 ok"]));
    overlapping(2).run(messages, |m| shop.ship(m)).await;
    assert_eq!((broker.told().len(), shop.most.get()), (3, 1));

    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = stream::iter(broker.messages(&["1 ok", "2 ok", "3 ok"]));
    overlapping(2).run(messages, |m| detached(&shop.store, m)).await;
    assert_eq!(broker.told(), told(&[(1, "ack 1"), (2, "ack 2"), (3, "ack 3")]));
}

/// A body of a second in its own task.
fn detached(store: &MemoryStore, m: &Message) -> impl Future<Output = Result<u64, Error>> + use<> {
    let operation = Operation::new(SCOPE);
    let (store, order) = (store.clone(), m.order.clone());
    async move {
        let body = || async {
            sleep(seconds(1)).await;
            Ok(7_u64)
        };
        operation.run_detached(&store, order, body).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_in_its_own_task_that_waits_at_the_shutdown_is_not_begun() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = broker.endless(&["1 5", "2 ok"]);
    let handler = |m: &Message| {
        let (attached, detached) = (shop.ship(m), detached(&shop.store, m));
        let is_first = m.order == "1";
        async move { if is_first { attached.await.map(drop) } else { Ok(detached.await.map(drop)?) } }
    };
    overlapping(1).run_until(sleep(seconds(2)), messages, handler).await;
    assert_eq!(broker.told(), told(&[(2, "back 2"), (5, "ack 1")]));
    assert_eq!(state(&shop.store, "2").await, None);
}
