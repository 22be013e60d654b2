//! The messages of a stream, and how each is settled with the broker.

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use idem::MemoryStore;
use idem::Operation;
use idem::message::{Consumer, Disposition, Reason};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::Instant;

use crate::events::Events;
use crate::message_support::{Failing, Failure, SCOPE, Shop, told};

#[tokio::test(start_paused = true)]
async fn a_broker_is_told_once_of_each_message_what_became_of_it() {
    let shop = Shop::new();
    let summary = shop.consume(Consumer::new(), &["1 ok", "2 transient", "3 final", "4 panic", "5 ok"]).await;
    let expected =
        [(1, "ack 1"), (1, "retry 2 1s"), (1, "reject 3 terminal"), (1, "retry 4 1s"), (1, "ack 5")];
    let mut heard = shop.broker.told();
    heard.sort_by(|a, b| a.1.split(' ').nth(1).cmp(&b.1.split(' ').nth(1)));
    assert_eq!(heard, told(&expected));
    assert_eq!((summary.taken, summary.acknowledged, summary.replayed), (5, 2, 0));
    assert_eq!((summary.retried, summary.panicked, summary.rejected), (2, 1, 1));
    assert_eq!((summary.given_back, summary.broker_errors, summary.stream_errors), (0, 0, 0));

    // The messages are delivered again. Calls with a recorded result do not run again, and the panic affected
    // only its own message.
    assert_eq!(shop.ran(), ["1", "2", "3", "4", "5"]);
    let summary = shop.consume(Consumer::new(), &["1 ok", "2 ok", "3 final", "4 ok", "5 ok"]).await;
    assert_eq!((summary.acknowledged, summary.replayed, summary.rejected), (4, 2, 1));
    assert_eq!(shop.ran(), ["2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_and_no_more_messages_are_taken_than_set() {
    let shop = Shop::new();
    let (taken, most, over) = (Cell::new(0_usize), Cell::new(0_usize), Cell::new(0_usize));
    let (running, most_running) = (Cell::new(0), Cell::new(0));
    let texts: Vec<String> = (0..40).map(|order| format!("{order} ok {}", order % 3)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let messages = stream::iter(shop.broker.messages(&texts)).inspect(|_| {
        taken.set(taken.get() + 1);
        most.set(most.get().max(taken.get() - over.get()));
    });
    let summary = Consumer::new().concurrency(2).prefetch(7).run(messages, |m| {
        let shipping = shop.ship(m);
        async {
            running.set(running.get() + 1);
            most_running.set(most_running.get().max(running.get()));
            let shipped = shipping.await;
            running.set(running.get() - 1);
            over.set(over.get() + 1);
            shipped
        }
    });
    assert_eq!(summary.await.acknowledged, 40);
    assert_eq!((most_running.get(), most.get()), (2, 7));
    // Two of three groups run at a time, so forty messages take twenty rounds of a second.
    assert_eq!(shop.broker.told().last().unwrap().0, 20);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_group_are_done_one_after_another_and_wait_behind_one_that_is_retried() {
    let shop = Shop::new();
    let texts = ["a1 ok a", "a2 twice a", "b1 ok b", "a3 ok a", "c1 final c", "c2 ok c", "x ok"];
    let summary = shop.consume(Consumer::new(), &texts).await;
    let mut heard = shop.broker.told();
    heard.sort();
    let expected = [
        (1, "ack a1"),
        (1, "ack b1"),
        (1, "ack x"),
        (1, "reject c1 terminal"),
        (2, "ack c2"),
        // The body of `a2` begins at 1 s, fails at 2 s, and runs again from 3 s to 4 s.
        (4, "ack a2"),
        (5, "ack a3"),
    ];
    assert_eq!(heard, told(&expected));
    assert_eq!((summary.taken, summary.acknowledged, summary.retried), (7, 6, 1));
    let a: Vec<String> = shop.ran().into_iter().filter(|order| order.starts_with('a')).collect();
    assert_eq!(a, ["a1", "a2", "a2", "a3"]);
    // While a message waits for its retry, another handler can run.
    let shop = Shop::new();
    shop.consume(Consumer::new().concurrency(1).prefetch(3), &["a twice a", "b ok", "c ok"]).await;
    assert_eq!(shop.broker.told(), told(&[(2, "ack b"), (3, "ack c"), (4, "ack a")]));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_for_its_own_consumer_in_whatever_order_the_store_answers() {
    // The grant for the first message arrives after the refusal for the second message.
    let late_grant = |store: &FaultStore<MemoryStore>| {
        store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(3)));
    };
    // The refusal for the second message arrives after the first call has ended.
    let late_refusal = |store: &FaultStore<MemoryStore>| {
        store.next(OperationKind::Claim, None);
        store.next(OperationKind::Claim, Fault::DelayAfter(Duration::from_secs(5)));
    };
    let neither = |_: &FaultStore<MemoryStore>| {};
    for (late, at) in [(&neither as &dyn Fn(&_), [1, 1]), (&late_grant, [4, 4]), (&late_refusal, [1, 5])] {
        let shop = Shop::new();
        late(&shop.store);
        let summary = shop.consume(Consumer::new(), &["1 ok", "1 ok"]).await;
        assert_eq!(shop.broker.told(), told(&[(at[0], "ack 1"), (at[1], "ack 1")]));
        assert_eq!((summary.replayed, summary.retried), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_stream_ends_nothing_and_is_not_asked_for_in_haste() {
    let shop = Shop::new();
    let (begin, asked) = (Instant::now(), Cell::new(0_u64));
    // The stream returns only errors for a minute, and then the message.
    let mut one = Some(shop.broker.message("1 ok"));
    let messages = stream::poll_fn(|_| {
        asked.set(asked.get() + 1);
        let up = begin.elapsed() > Duration::from_secs(60);
        std::task::Poll::Ready(if up { one.take().map(Ok) } else { Some(Err("no connection")) })
    });
    let summary = Consumer::new().run(messages, |m| shop.ship(m)).await;
    assert_eq!((summary.taken, summary.acknowledged), (1, 1));
    assert_eq!(summary.stream_errors, asked.get() - 2);
    assert!(asked.get() > 15 && asked.get() < 40, "{}", asked.get());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_fails_hangs_or_panics_costs_its_own_message_only() {
    let shop = Shop::new();
    shop.broker.fail("ack 1", Failing::Error);
    shop.broker.fail("ack 2", Failing::Hang);
    shop.broker.fail("reject 3 terminal", Failing::Panic);
    let consumer = Consumer::new().concurrency(1).broker_timeout(Duration::from_secs(7));
    let summary = shop.consume(consumer, &["1 ok", "2 ok", "3 final", "4 ok"]).await;
    let expected = [(1, "ack 1"), (2, "ack 2"), (10, "reject 3 terminal"), (11, "ack 4")];
    assert_eq!(shop.broker.told(), told(&expected));
    assert_eq!((summary.acknowledged, summary.rejected, summary.broker_errors), (1, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_extended_from_its_arrival_to_its_end() {
    let shop = Shop::new();
    shop.broker.fail("extend 1", Failing::Error);
    let consumer = Consumer::new().extend_every(Duration::from_secs(10));
    let summary = shop.consume(consumer, &["1 25 a", "2 ok a", "3 ok"]).await;
    let mut heard = shop.broker.told();
    heard.sort();
    let (extend_1, extend_2) = ("extend 1", "extend 2");
    let extended = [(10, extend_1), (10, extend_2), (20, extend_1), (20, extend_2)];
    let expected = [&[(1, "ack 3")], &extended[..], &[(25, "ack 1"), (26, "ack 2")]].concat();
    assert_eq!(heard, told(&expected));
    assert_eq!((summary.acknowledged, summary.broker_errors), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn an_error_chooses_what_becomes_of_its_message() {
    let shop = Shop::new();
    let consumer = Consumer::new().concurrency(1).dispose(|error, attempt, proposed| match error {
        Failure::Transient if attempt >= 2 => Disposition::reject(Reason::Exhausted),
        Failure::Transient => Disposition::retry(Duration::from_secs(3600)),
        Failure::Final => Disposition::Acknowledge,
        Failure::Idem(_) => proposed,
    });
    shop.consume(consumer, &["1 transient", "1 transient", "2 final", "2 final", "3 ok"]).await;
    let expected = ["retry 1 3600s", "reject 1 exhausted", "ack 2", "ack 2", "ack 3"];
    assert_eq!(shop.broker.heard(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_asked_where_only_idem_knows_what_is_known() {
    let shop = Shop::new();
    shop.store.always(OperationKind::Claim, Fault::FailBefore);
    let consumer = Consumer::new().dispose(|_: &Failure, _, _| Disposition::Acknowledge);
    // Every claim fails. So the consumer holds the message, and gives it back at the shutdown.
    shop.consume_until(60, consumer.clone(), &["1 ok"]).await;
    // Without an idempotent call, only the handler's error can decide.
    let messages = stream::iter(shop.broker.messages(&["2 ok"]));
    consumer.run(messages, |_| ready(Err::<(), _>(Failure::Transient))).await;
    assert_eq!(shop.broker.heard(), ["back 1", "ack 2"]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_forgets_before_the_broker_does_is_reported_once() {
    let (events, _guard) = Events::start();
    let ttl = Duration::from_secs(3600);
    let shop = Shop::of(Operation::new(SCOPE).ttl(ttl));
    let run = async |horizon: Duration| {
        let messages = stream::iter(shop.broker.messages(&["1 ok", "2 ok"]));
        // The handler has its own observer inside the consumer's observer.
        let observed = async |shipping| idem::observe(shipping).await.value;
        let consumer = Consumer::new().redelivery_horizon(horizon);
        consumer.run(messages, |m| observed(shop.ship(m))).await.forgetful
    };
    assert_eq!(run(ttl).await.into_iter().collect::<Vec<_>>(), []);
    let short: Vec<_> = run(ttl + Duration::from_secs(1)).await.into_iter().collect();
    assert_eq!(short, [(SCOPE.to_owned(), ttl)]);
    assert_eq!(events.only("ttl_below_horizon")[0], "WARN");
}
