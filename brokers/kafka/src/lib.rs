//! Idempotent workers on Kafka: a [`Source`] gives the messages of a consumer group to
//! [`idem::message::Consumer`](Consumer), and commits an offset when everything before it is done.
//!
//! ```no_run
//! use idem_kafka::{Consumer, Source};
//! use idem_runtime::{Error, MemoryStore, Operation};
//! use rdkafka::{ClientConfig, Message as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A store of your own in its place: results in this one end with the process.
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
//! | idem decides | what is done |
//! |---|---|
//! | acknowledge | the offset is done; the group commits up to where all is done, every 200 ms unless configured |
//! | retry after a time | kept in this worker and handled again; with [`Source::retry_topic`] a copy there, then the offset is done |
//! | reject | a copy to the dead letters (key and headers kept; [`REASON`] added), then the offset is done |
//! | give back, at the shutdown | nothing: the offset is not done, and the next worker goes on from there |
//! | a copy could not be sent | handled again after a second |
//!
//! Messages of one partition are handled side by side and are not done in their order: a worker that dies leaves some to be
//! delivered again, which are replays.
//!
//! - **Rebalance.** A partition that goes to another worker is kept until what is in work there is done, for
//!   [`hand_over`](Source::hand_over) at the most, and committed; nothing new is begun in it. What takes longer goes on, and the other
//!   worker finds it in flight. The consumer has a thread of its own, so that this wait holds up no handler. All assignors work,
//!   `cooperative-sticky` included.
//! - **Backpressure.** Each partition has its share of [`held`](Source::held); one that has used it up is paused, and the others go
//!   on. Polling never stops, so `max.poll.interval.ms` is kept however long handlers take, also while the store fails.
//! - **Retries.** Kafka delays no message. Without a retry topic a message waits in its worker, and its offset holds up the partition's
//!   commit; other messages go on. With one, the wait is in the retry topic's partition.
//!
//! # Limits of Kafka
//!
//! - **`session.timeout.ms`** (45 s unless set): a killed worker's partitions stand still for so long.
//! - **Deliveries** are not counted by Kafka: [`max_tries`](Consumer::max_tries) counts the retries, not what dead workers had.
//! - **Horizon**: offsets can be reset for as long as the topic keeps messages; set [`redelivery_horizon`](Consumer::redelivery_horizon) to its
//!   `retention.ms`, and to twice that with a retry topic.
//! - **Order**: none between messages that are in work at once. [`Source::group_by`] handles a group in order, its retries in their place.
//! - **Transactions** are not used: they make writes to Kafka and offsets one, and know nothing of an effect elsewhere.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The first program of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod group;
mod intake;
mod offsets;
mod received;
mod source;
mod taken;

pub use idem_runtime::message::{BrokerError as Error, Consumer, Summary};
pub use received::{AFTER, DELIVERED, REASON, Received};
pub use source::Source;
