//! Bodies that take too long, of messages and batches; and what a consumer and a batch wait for at their end.

use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::SqsMessage;
use idem::lambda::batch::Batch;
use idem::message::Consumer;
use idem::protocol::State;
use idem::{MemoryStore, Operation, Store as _};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::{Instant, sleep};

use crate::events::Events;
use crate::message_support::{Broker, Failure, SCOPE, Shop, key, told};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_body_takes_too_long_is_retried_and_set_aside_in_the_end() {
    let shop = Shop::of(MemoryStore::new(), Operation::new(SCOPE).timeout(seconds(3)));
    let broker = Broker::new(&shop.store);
    let consumer = Consumer::new().max_tries(2);
    let summary = consumer
        .run(futures_util::stream::iter(broker.messages(&["slow 100 g", "next ok g"])), |m| shop.ship(m))
        .await;
    // In an order it is retried in its place; the next one waits for it and no longer.
    let heard = broker.heard();
    assert_eq!(heard, ["reject slow exhausted", "ack next"]);
    assert_eq!(shop.ran(), ["slow", "slow", "next"]);
    assert_eq!((summary.retried, summary.rejected, summary.acknowledged), (1, 1, 1));
    let record = shop.store.get(&key("slow")).await.unwrap().unwrap();
    assert_eq!((record.state, record.recovered), (State::Released, true), "as in a crash");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_retried_when_its_key_is_due_and_not_before() {
    let shop = Shop::of(MemoryStore::new(), Operation::new(SCOPE).retry_after(seconds(100)));
    let broker = Broker::new(&shop.store);
    let messages = futures_util::stream::iter(broker.messages(&["1 transient"]));
    Consumer::new().run(messages, |m| shop.ship(m)).await;
    assert_eq!(broker.told(), told(&[(1, "retry 1 100s")]));
    // What comes earlier all the same is sent away for the rest.
    sleep(seconds(40)).await;
    let messages = futures_util::stream::iter(broker.messages(&["1 transient"]));
    Consumer::new().run(messages, |m| shop.ship(m)).await;
    assert_eq!(broker.told(), told(&[(41, "retry 1 60s")]));
    assert_eq!(shop.ran(), ["1"]);
}

/// Records with these identifiers, to be in work for so many seconds.
fn records(all: &[(&str, u64)]) -> Vec<SqsMessage> {
    let record = |&(id, time): &(&str, u64)| {
        let mut record = SqsMessage::default();
        (record.message_id, record.body) = (Some(id.to_owned()), Some(time.to_string()));
        record
    };
    all.iter().map(record).collect()
}

async fn work(operation: &Operation, store: &MemoryStore, record: SqsMessage) -> Result<u64, Failure> {
    let time = record.body.unwrap().parse().unwrap();
    let body = || async move {
        sleep(seconds(time)).await;
        Ok(time)
    };
    operation.run(store, record.message_id.unwrap(), body).await
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_body_takes_too_long_is_reported_and_the_others_are_done() {
    let (store, operation) = (MemoryStore::new(), Operation::new(SCOPE).timeout(seconds(3)));
    let begin = Instant::now();
    let batch = Batch::new();
    let response = batch
        .process(records(&[("slow", 100), ("fast", 1)]), |record| work(&operation, &store, record))
        .await;
    let failed: Vec<_> =
        response.batch_item_failures.iter().map(|failed| failed.item_identifier.as_str()).collect();
    assert_eq!((failed, begin.elapsed().as_secs()), (vec!["slow"], 3));
    assert!(store.get(&key("slow")).await.unwrap().unwrap().recovered);
}

#[tokio::test(start_paused = true)]
async fn a_detached_record_that_is_cut_off_is_waited_for_until_the_deadline() {
    let (store, operation) = (MemoryStore::new(), Operation::new(SCOPE));
    let detached = async |record: SqsMessage| {
        let body = || async {
            sleep(seconds(5)).await;
            Ok::<_, Failure>(5)
        };
        // Its handler gives up earlier than its body.
        let call = operation.run_detached(&store, record.message_id.unwrap(), body);
        tokio::time::timeout(seconds(1), call).await.unwrap_or(Err(Failure::Transient))
    };
    let begin = Instant::now();
    let batch = Batch::new().deadline(SystemTime::now() + seconds(60));
    let response = batch.process(records(&[("1", 0)]), detached).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(begin.elapsed().as_secs(), 5, "the function is not frozen before its body has ended");
    assert_eq!(store.get(&key("1")).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_shut_down_drains_and_says_what_is_left() {
    let (events, _guard) = Events::start();
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.always(OperationKind::Complete, Fault::FailBefore);
    let operation = Operation::new(SCOPE).lease(seconds(1)).store_timeout(seconds(1));
    let broker = Broker::new(&memory);
    let handle = |message: &crate::message_support::Message| {
        let order = message.order.clone();
        let body = || async { Ok::<_, Failure>(7) };
        let (operation, store) = (&operation, &store);
        async move { operation.run(store, order, body).await }
    };
    let summary = Consumer::new().run_until(sleep(seconds(3)), broker.endless(&["1 ok"]), handle).await;
    assert_eq!((summary.acknowledged, summary.left.results, summary.left.is_complete()), (1, 1, false));
    assert_eq!(events.only("not_drained")[0], "WARN");

    // A consumer whose store is back in time leaves nothing. The engine tries to record a result again within four
    // seconds, and the consumer waits five.
    let back = async {
        sleep(seconds(3)).await;
        store.always(OperationKind::Complete, None);
    };
    let consumer = Consumer::new().run_until(sleep(seconds(3)), broker.endless(&["2 ok"]), handle);
    let (summary, ()) = futures_util::future::join(consumer, back).await;
    assert!(summary.left.is_complete(), "{:?}", summary.left);
    for order in ["1", "2"] {
        assert_eq!(memory.get(&key(order)).await.unwrap().unwrap().state, State::Completed);
    }
}
