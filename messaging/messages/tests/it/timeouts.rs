//! Bodies that take too long, and what a consumer and a batch wait for at their end.

use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::SqsMessage;
use idem::lambda::batch::Batch;
use idem::message::Consumer;
use idem::protocol::State;
use idem::{Operation, Store as _};
use idem_testing::{Fault, OperationKind};
use tokio::time::{Instant, sleep};

use crate::events::Events;
use crate::message_support::{Failure, SCOPE, Shop, key};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_detached_record_that_is_cut_off_is_waited_for_until_the_deadline() {
    let (shop, operation) = (Shop::new(), Operation::new(SCOPE));
    let detached = async |_: SqsMessage| {
        let body = || async {
            sleep(seconds(5)).await;
            Ok::<_, Failure>(5)
        };
        // Its handler gives up earlier than its body.
        let call = operation.run_detached(&shop.store, "1".to_owned(), body);
        tokio::time::timeout(seconds(1), call).await.unwrap_or(Err(Failure::Transient))
    };
    let begin = Instant::now();
    let batch = Batch::new().deadline(SystemTime::now() + seconds(60));
    let response = batch.process(vec![SqsMessage::default()], detached).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(begin.elapsed().as_secs(), 5, "the function is not frozen before its body has ended");
    assert_eq!(shop.store.get(&key("1")).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_shut_down_drains_and_says_what_is_left() {
    let (events, _guard) = Events::start();
    let mut shop = Shop::faulty();
    shop.operation = shop.operation.lease(seconds(1)).store_timeout(seconds(1));
    shop.store.always(OperationKind::Complete, Fault::FailBefore);
    let summary = shop.consume_until(3, Consumer::new(), &["1 ok"]).await;
    assert_eq!((summary.acknowledged, summary.left.results, summary.left.is_complete()), (1, 1, false));
    assert_eq!(events.only("not_drained")[0], "WARN");

    // A consumer whose store is back in time leaves nothing. The engine tries to record a result again within four
    // seconds, and the consumer waits ten.
    let back = async {
        sleep(seconds(3)).await;
        shop.store.always(OperationKind::Complete, None);
    };
    let (summary, ()) = tokio::join!(shop.consume_until(3, Consumer::new(), &["2 ok"]), back);
    assert!(summary.left.is_complete(), "{:?}", summary.left);
    for order in ["1", "2"] {
        assert_eq!(shop.store.get(&key(order)).await.unwrap().unwrap().state, State::Completed);
    }
}
