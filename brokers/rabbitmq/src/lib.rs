//! Idempotent workers on RabbitMQ: a [`Source`] gives the messages of a queue to
//! [`idem::message::Consumer`](Consumer), and settles each with RabbitMQ.
//!
//! ```no_run
//! use idem_rabbitmq::{Consumer, Source};
//! use idem_runtime::{Error, MemoryStore, Operation};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A store of your own in its place: results in this one end with the process.
//! let store = MemoryStore::new();
//! let ship = Operation::new("orders.ship");
//! let summary = Source::new("amqp://guest:guest@127.0.0.1:5672/%2f", "orders", "orders-dead")
//!     .run(Consumer::new().concurrency(10), |order| {
//!         let order = String::from_utf8_lossy(&order.data).into_owned();
//!         ship.run(&store, order, || async { Ok::<_, Error>("parcel 7".to_owned()) })
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! | idem decides | RabbitMQ gets |
//! |---|---|
//! | acknowledge | `basic.ack` |
//! | retry after a time | a copy, confirmed, to a delay queue (headers kept; [`DELIVERED`] added); then `basic.ack` |
//! | reject | a copy, confirmed, to the dead letters (headers kept; [`REASON`] added); then `basic.ack` |
//! | give back, at the shutdown | `basic.nack` with `requeue` |
//! | a copy was refused, or could be routed to no queue | `basic.nack` with `requeue`, after a second |
//!
//! A worker that dies between a copy and its `ack` leaves two of one message: the second is a replay, or a second dead letter.
//!
//! # Delay queues
//!
//! RabbitMQ delays no message, and a queue with a time to live looks at its first message only. So there is one durable queue for
//! each pause, `QUEUE-after-MS`, declared when it is first needed; a pause is rounded up to the next of 0.1 s, 0.3 s, 1 s, 2 s, 5 s,
//! 10 s, 30 s, 1 min, 2 min, 5 min, 15 min, 1 h, 6 h and 24 h. No message waits behind one with a longer pause. The user of the connection
//! needs the permission to configure these names.
//!
//! # Limits of RabbitMQ
//!
//! - **`consumer_timeout`** (30 minutes unless set) closes the channel of a consumer that has not acknowledged for so long. There is no
//!   extension: a handler must be done by then, and so must the wait while the store fails.
//! - **`x-delivery-limit`** of a quorum queue (20 unless set, since RabbitMQ 4.0) counts returned messages and those of dead workers,
//!   but not the copies of retries. Beyond it RabbitMQ drops the message, or sends it to the queue's own dead-letter exchange.
//! - **Order**: none between messages that are in work at once. With [`Source::group_by`] messages of a group are handled in order; with
//!   several workers that needs a queue with `x-single-active-consumer`.
//! - **Horizon**: a queue without a time to live delivers a message again for ever; set
//!   [`redelivery_horizon`](Consumer::redelivery_horizon) to its `x-message-ttl`.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The first program of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod copy;
mod link;
mod received;
mod source;
mod taking;

pub use copy::{DELIVERED, REASON};
pub use idem_runtime::message::{BrokerError as Error, Consumer, Summary};
pub use received::Received;
pub use source::Source;
