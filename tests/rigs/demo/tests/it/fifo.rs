//! The function on an emulated FIFO queue.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lambda_events::event::sqs::SqsEvent;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, QueueAttributeName};
use demo::brokers::client;
use demo::brokers::lambda::{DeadLetters, handle};
use demo::brokers::mapping::{Delivery, Mapping};
use demo::{Failure, Order, Shop};
use idem::protocol::{Claim, ClaimAnswer, Owner};
use idem::{KeyBuilder, RecordKey, Scope, Store as _};
use idem_test_servers::Aws;
use lambda_runtime::{Context, LambdaEvent, service_fn};
use serde_json::json;
use tempfile::TempDir;

type Anything<T> = Result<T, Failure>;

/// How often a message is delivered before it becomes a dead letter.
const DELIVERIES: u32 = 4;

/// A FIFO queue with its dead letters, a table, and the function on both.
struct Queues {
    sqs: Client,
    queue: String,
    dead: String,
    shop: Shop,
    dead_letters: Option<DeadLetters>,
    _folder: TempDir,
    _aws: Aws,
}

impl Queues {
    /// `visibility` is how long a received message stays hidden, in seconds.
    async fn open(visibility: u64) -> Anything<Self> {
        let aws = Aws::start();
        let sqs = client(&aws.url());
        let fifo = async |name: &str, redrive: Option<String>| -> Anything<String> {
            let create = sqs.create_queue().queue_name(name);
            let create = create.attributes(QueueAttributeName::FifoQueue, "true");
            let create = create.attributes(QueueAttributeName::VisibilityTimeout, visibility.to_string());
            let create = redrive.into_iter().fold(create, |create, redrive| {
                create.attributes(QueueAttributeName::RedrivePolicy, redrive)
            });
            Ok(create.send().await?.queue_url.ok_or("no queue")?)
        };
        let dead = fifo("dead.fifo", None).await?;
        let request =
            sqs.get_queue_attributes().queue_url(&dead).attribute_names(QueueAttributeName::QueueArn);
        let attributes = request.send().await?.attributes.unwrap_or_default();
        let arn = attributes.get(&QueueAttributeName::QueueArn).ok_or("no name of the queue")?;
        let redrive = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": DELIVERIES }).to_string();
        let queue = fifo("orders.fifo", Some(redrive)).await?;

        let folder = tempfile::tempdir()?;
        let table =
            format!("dynamodb://{}/orders", aws.url().trim_start_matches("http://").trim_end_matches('/'));
        let store = table.parse::<rig_stores::Choice>()?.open().await?;
        let shop =
            Shop::new(store, Duration::from_secs(30), folder.path().to_owned(), Duration::from_millis(5));
        Ok(Self { sqs, queue, dead, shop, dead_letters: None, _folder: folder, _aws: aws })
    }

    /// Sends an order; `once` is the queue's own deduplication id.
    async fn send(&self, group: &str, once: &str, id: u64, pieces: u32) -> Anything<String> {
        let body = serde_json::to_string(&Order { id, pieces })?;
        let send = self.sqs.send_message().queue_url(&self.queue).message_body(body);
        let send = send.message_group_id(group).message_deduplication_id(once);
        Ok(send.send().await?.message_id.ok_or("no identifier")?)
    }

    fn mapping(&self) -> Mapping {
        Mapping::new(self.sqs.clone(), self.queue.clone())
    }

    /// The shipped orders, in the order of their effects.
    fn shipped(&self) -> Vec<u64> {
        self.shop.ledger.read("effects").unwrap().iter().map(|line| line.parse().unwrap()).collect()
    }

    /// How many answers were replays.
    fn replays(&self) -> usize {
        self.shop.ledger.read("answers").unwrap().iter().filter(|line| line.ends_with("replayed")).count()
    }

    /// The orders among the dead letters.
    async fn dead_letters(&self) -> Anything<Vec<u64>> {
        let messages = Mapping::new(self.sqs.clone(), self.dead.clone()).take().await?;
        Ok(messages.iter().map(order).collect())
    }
}

fn order(message: &Message) -> u64 {
    serde_json::from_str::<Order>(message.body.as_deref().unwrap()).unwrap().id
}

/// The orders of a group among these.
fn of(orders: &[u64], group: &[u64]) -> Vec<u64> {
    orders.iter().copied().filter(|order| group.contains(order)).collect()
}

const A: [u64; 5] = [1, 2, 3, 4, 5];
const B: [u64; 5] = [11, 12, 13, 14, 15];

/// Sends both groups alternately. Order 13 is poison: it has no pieces.
async fn send_both(queues: &Queues) -> Anything<Vec<String>> {
    let mut identifiers = Vec::new();
    for (a, b) in A.into_iter().zip(B) {
        identifiers.push(queues.send("a", &a.to_string(), a, 1).await?);
        identifiers.push(queues.send("b", &b.to_string(), b, u32::from(b != 13)).await?);
    }
    Ok(identifiers)
}

fn failures(delivery: &Delivery) -> Vec<String> {
    let failures = delivery.response.batch_item_failures.iter();
    failures.map(|failure| failure.item_identifier.clone()).collect()
}

#[tokio::test]
async fn a_group_stands_still_at_its_first_failure_and_goes_on_in_order_when_that_is_over() -> Anything<()> {
    let mut queues = Queues::open(3).await?;
    queues.dead_letters = Some(DeadLetters { sqs: queues.sqs.clone(), queue: queues.dead.clone() });
    let identifiers = send_both(&queues).await?;
    // Order 3 is in flight with a worker that is dead.
    let key = KeyBuilder::new().literal("order/").part(&3_u64).finish()?;
    let lease = Duration::from_secs(5);
    let (owner, ttl) = (Owner::random(), Duration::from_secs(60));
    let fingerprint = None;
    let gone = Claim::new(owner, lease, ttl).with_fingerprint(fingerprint);
    let key = RecordKey::new(Scope::new("orders.ship")?, key);
    assert!(matches!(queues.shop.store.claim(&key, &gone).await?, ClaimAnswer::Granted(_)));

    let mapping = queues.mapping();
    let mut function = service_fn(|event| handle(&queues.shop, queues.dead_letters.as_ref(), event));
    let first = mapping.take().await?;
    assert_eq!(first.iter().map(order).collect::<Vec<_>>(), [1, 11, 2, 12, 3, 13, 4, 14, 5, 15]);
    let first = mapping.deliver(first, &mut function).await?;
    let held_up = [4, 6, 8].map(|place: usize| identifiers[place].clone());
    assert_eq!(failures(&first), held_up);
    let shipped = queues.shipped();
    assert_eq!((of(&shipped, &A), of(&shipped, &B)), (vec![1, 2], vec![11, 12, 14, 15]));
    assert_eq!(queues.dead_letters().await?, [13]);

    let begin = Instant::now();
    while of(&queues.shipped(), &A) != A {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", queues.shipped());
        let messages = mapping.take().await?;
        let orders: Vec<_> = messages.iter().map(order).collect();
        assert!(orders.is_empty() || orders == [3, 4, 5], "delivered out of order: {orders:?}");
        mapping.deliver(messages, &mut function).await?;
    }
    assert_eq!(queues.shipped().len(), A.len() + B.len() - 1);
    Ok(())
}

#[tokio::test]
async fn poison_that_is_left_to_the_redrive_policy_takes_with_it_what_stands_behind_it() -> Anything<()> {
    let queues = Queues::open(1).await?;
    let identifiers = send_both(&queues).await?;
    let mapping = queues.mapping();
    let mut function = service_fn(|event| handle(&queues.shop, queues.dead_letters.as_ref(), event));
    let behind = [5, 7, 9].map(|place: usize| identifiers[place].clone());
    for _ in 0..DELIVERIES {
        let mut messages = Vec::new();
        let begin = Instant::now();
        while messages.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            messages = mapping.take().await?;
        }
        assert_eq!(failures(&mapping.deliver(messages, &mut function).await?), behind);
    }
    let begin = Instant::now();
    let mut dead = Vec::new();
    while dead.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert_eq!(mapping.take().await?.len(), 0);
        dead = queues.dead_letters().await?;
    }
    assert_eq!(dead, [13, 14, 15]);
    assert_eq!((of(&queues.shipped(), &A), of(&queues.shipped(), &B)), (A.to_vec(), vec![11, 12]));
    Ok(())
}

#[tokio::test]
async fn a_batch_that_nobody_answered_for_comes_again_in_order_and_ships_nothing_twice() -> Anything<()> {
    let queues = Queues::open(1).await?;
    for order in A {
        queues.send("a", &order.to_string(), order, 1).await?;
    }
    // Sent again with the same deduplication id, which the queue drops, and with another one.
    queues.send("a", "1", 1, 1).await?;
    queues.send("a", "again", 1, 1).await?;
    let everything = [1, 2, 3, 4, 5, 1];

    let mapping = queues.mapping();
    let taken = mapping.take().await?;
    assert_eq!(taken.iter().map(order).collect::<Vec<_>>(), everything);
    // The function handles the whole batch, but its response is lost: no message is deleted.
    let unheard = Mapping::new(queues.sqs.clone(), queues.dead.clone());
    let mut function = service_fn(|event| handle(&queues.shop, queues.dead_letters.as_ref(), event));
    let lost = unheard.deliver(taken, &mut function).await;
    assert!(lost.is_err(), "these are no messages of that queue");
    assert_eq!((queues.shipped(), queues.replays()), (A.to_vec(), 1));

    let begin = Instant::now();
    let mut again = Vec::new();
    while again.len() < everything.len() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{again:?}");
        let delivery = mapping.deliver(mapping.take().await?, &mut function).await?;
        assert!(delivery.response.batch_item_failures.is_empty());
        again.extend(delivery.messages.iter().map(order));
    }
    assert_eq!(again, everything);
    assert_eq!((queues.shipped(), queues.replays()), (A.to_vec(), 1 + everything.len()));
    Ok(())
}

#[tokio::test]
async fn a_dead_letter_keeps_the_messages_own_attributes() -> Anything<()> {
    let mut queues = Queues::open(1).await?;
    queues.dead_letters = Some(DeadLetters { sqs: queues.sqs.clone(), queue: queues.dead.clone() });
    let event: SqsEvent = serde_json::from_value(json!({ "Records": [{
        "messageId": "m-1",
        "body": "no order",
        "attributes": { "MessageGroupId": "a", "SequenceNumber": "1" },
        "messageAttributes": {
            "traceparent": { "dataType": "String", "stringValue": "00-1-2-01" },
            "reason": { "dataType": "String", "stringValue": "its sender's" },
        },
    }] }))?;
    let mut context = Context::default();
    context.deadline =
        u64::try_from((SystemTime::now() + Duration::from_secs(60)).duration_since(UNIX_EPOCH)?.as_millis())?;
    let response =
        handle(&queues.shop, queues.dead_letters.as_ref(), LambdaEvent::new(event, context)).await?;
    assert!(response.batch_item_failures.is_empty(), "{response:?}");

    let take = queues.sqs.receive_message().queue_url(&queues.dead).message_attribute_names("All");
    let messages = take.wait_time_seconds(1).send().await?.messages.unwrap_or_default();
    let attributes = messages[0].message_attributes.clone().unwrap_or_default();
    let text = |name: &str| attributes.get(name).and_then(|attribute| attribute.string_value.clone());
    assert_eq!(text("traceparent").as_deref(), Some("00-1-2-01"));
    assert_ne!(text("reason").as_deref(), Some("its sender's"));
    Ok(())
}
