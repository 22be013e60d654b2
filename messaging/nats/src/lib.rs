//! Idempotent workers on NATS JetStream: a [`Source`] passes the messages of a pull consumer to
//! [`idem::message::Consumer`](Consumer), and settles each message with JetStream.
//!
//! ```no_run
//! use async_nats::jetstream;
//! use idem_nats::{Consumer, Source};
//! use idem::{Error, MemoryStore, Operation};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! // Use a store that survives the process. A `MemoryStore` loses its results when the process ends.
//! let store = MemoryStore::new();
//! let ship = Operation::new("orders.ship");
//! let jetstream = jetstream::new(async_nats::connect("127.0.0.1:4222").await?);
//! let shippers = jetstream.get_consumer_from_stream("shippers", "orders").await?;
//! let summary = Source::new(jetstream, shippers, "orders-dead")
//!     .run(Consumer::new().concurrency(10), |order| {
//!         let order = String::from_utf8_lossy(&order.payload).into_owned();
//!         ship.run(&store, order, || async { Ok::<_, Error>("parcel 7".to_owned()) })
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! | idem decides | JetStream gets |
//! |---|---|
//! | acknowledge | `+ACK`, and the source waits for its confirmation |
//! | retry after a time | `-NAK` with that delay, which the server keeps |
//! | reject | a copy to the dead letters (headers kept, headers of [`DeadLetter`](idem_messages::DeadLetter) added), then `+ACK` |
//! | give back, at the shutdown | `-NAK` |
//! | still held | `+WPI`, each time a third of `ack_wait` (or of the shortest `backoff`, if that is less) has passed |
//! | no stream stores a dead letter | nothing: the message is held, and the copy is repeated after 1 s, 2 s, .. 30 s |
//!
//! The source requests as many messages as the consumer has room for, and holds no others.
//!
//! # Limits of JetStream
//!
//! - **`max_deliver`**: after the last delivery that this setting allows, the server never delivers the
//!   message again. If the message must be retried or given back after that delivery, the source sends it to
//!   the dead letters instead, with the reason `exhausted`. So leave `max_deliver` unset and give the
//!   operation `max_attempts`.
//! - **`ack_wait`** (30 s unless set): the messages of a worker that dies are delivered again only after this
//!   time.
//! - **`max_ack_pending`** (1,000 unless set) limits how many unacknowledged messages all workers of the
//!   consumer have together. Set it to at least the number of messages that these workers hold. With 1, the
//!   messages are handled in order. JetStream may deliver the messages of one group ([`Source::group_by`]) to
//!   different workers, so if several workers must keep the order of groups, set it to 1.
//! - **`max_age`** of the stream is the redelivery horizon, unless the consumer sets one. Without `max_age`,
//!   a message may be delivered again at any time.
//! - **`Nats-Msg-Id`**: if two messages are *sent* with one id within the stream's duplicate window, the
//!   server drops the second message. It does not drop a second *delivery* of a message.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The doc tests compile the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod letters;
mod received;
mod source;
mod taking;

pub use idem_messages::{BrokerError as Error, Consumer, Summary};
pub use received::Received;
pub use source::Source;
