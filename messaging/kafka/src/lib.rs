//! Idempotent workers on Kafka: a [`Source`] passes the messages of a consumer group to
//! [`idem::message::Consumer`](Consumer), and commits an offset when every message before it is done.
//!
//! ```no_run
//! use idem_kafka::{Consumer, Source};
//! use idem::{Error, MemoryStore, Operation};
//! use rdkafka::{ClientConfig, Message as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Use a store that survives the process. A `MemoryStore` loses its results when the process ends.
//! let store = MemoryStore::new();
//! let ship = Operation::new("orders.ship");
//! let mut config = ClientConfig::new();
//! config.set("bootstrap.servers", "127.0.0.1:9092").set("group.id", "shippers");
//! let summary = Source::new(config, ["orders"], "orders-dead")
//!     .run(Consumer::new().concurrency(10), |order| {
//!         let order = String::from_utf8_lossy(order.payload().unwrap_or_default()).into_owned();
//!         ship.run(&store, order, || async { Ok::<_, Error>("parcel 7".to_owned()) })
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! | idem decides | what the source does |
//! |---|---|
//! | acknowledge | marks the offset as done; every 200 ms (unless configured), the source commits the offset up to which all messages are done |
//! | retry after a time | keeps the message and handles it again; with [`Source::retry_topic`], sends a copy there and marks the offset as done |
//! | reject | sends a copy to the dead letters (key and headers kept, headers of [`DeadLetter`](idem_messages::DeadLetter) added), then marks the offset as done |
//! | give back, at the shutdown | nothing: the offset is not done, and the next worker continues from it |
//! | a copy cannot be sent | nothing: the message is held, and the copy is repeated after 1 s, 2 s, .. 30 s |
//!
//! Messages of one partition are handled concurrently and may end in another order than they came in. After a
//! worker dies, the next worker may get finished messages again; it replays their results.
//!
//! - **Rebalance.** When a partition goes to another worker, its finished offsets are committed at once. A
//!   running handler continues. The other worker gets the handler's message, too, finds the call in flight,
//!   and waits for the result. All assignors work, including `cooperative-sticky`.
//! - **Backpressure.** The partitions of a worker share 20 times as many messages as the [`Consumer`] takes
//!   at a time, including messages that wait for a retry. The shares are equal, and each is at least as large
//!   as the number that the consumer takes. A partition that holds its share is paused; the others continue.
//!   Polling never stops, so the worker keeps within `max.poll.interval.ms` however long handlers take, even
//!   while the store fails.
//! - **Retries.** Kafka cannot delay a message. Without a retry topic, a message waits in its worker, and its
//!   offset blocks the partition's commit. Other messages are handled meanwhile. With a retry topic, the
//!   message blocks the commit of a partition of that topic instead.
//!
//! # Limits of Kafka
//!
//! - **Redrive**: Kafka removes no single record. The committed offset of the group `GROUP-redrive` (`GROUP`
//!   is the `group.id` of the worker) is just after the last letter that was sent back. If a redrive leaves
//!   out a letter before this offset, it copies the letter to the end of the topic. If the broker has no
//!   committed offset for the group, a redrive reads all letters of the topic. The broker has none before the
//!   first letter was sent back, and it forgets the offset after `offsets.retention.minutes` (7 days unless
//!   set). So the `retention.ms` and the `segment.ms` of the letters' topic must be shorter than this
//!   time; otherwise messages go back a second time.
//! - **`session.timeout.ms`** (45 s unless set): the partitions of a killed worker go to another worker only
//!   after this time.
//! - **Deliveries** are not counted by Kafka, so [`max_tries`](Consumer::max_tries) counts retries, but not
//!   deliveries to workers that died.
//! - **Redelivery horizon**: offsets can be reset for as long as the topic keeps messages. Set
//!   [`redelivery_horizon`](Consumer::redelivery_horizon) to the topic's `retention.ms`, and with a retry
//!   topic to twice that time.
//! - **Order**: messages that are in work at the same time have no order. With [`Source::group_by`] the
//!   messages of a group are handled in order, and a retried message keeps its place. The message's key is a
//!   good group: Kafka delivers all messages with one key to one worker, in order.
//! - **Transactions** are not used, because a transaction covers only writes to Kafka and the commit of
//!   offsets, and no effect elsewhere.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The doc tests compile the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod group;
mod intake;
mod letters;
mod offsets;
mod received;
mod source;

pub use idem_messages::{BrokerError as Error, Consumer, Summary};
pub use received::{AFTER, Received};
pub use source::Source;
