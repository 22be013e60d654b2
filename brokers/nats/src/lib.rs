//! Idempotent workers on NATS JetStream: a [`Source`] gives the messages of a pull consumer to
//! [`idem::message::Consumer`](Consumer), and settles each with JetStream.
//!
//! ```no_run
//! use async_nats::jetstream;
//! use idem_nats::{Consumer, Source};
//! use idem_runtime::{Error, MemoryStore, Operation};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! // A store of your own in its place: results in this one end with the process.
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
//! | reject | a copy to the dead letters (headers kept; [`REASON`] added), then `+ACK` |
//! | give back, at the shutdown | `-NAK` |
//! | still in work | `+WPI`, every third of `ack_wait` |
//!
//! # Limits of JetStream
//!
//! - **`max_deliver`**: at the last delivery that it allows, the server forgets a message that is to come again. The source then
//!   sends it to the dead letters, as `exhausted`. Leave `max_deliver` unset and give the operation `max_attempts`.
//! - **`ack_wait`** (30 s unless set): a worker that dies keeps its messages for so long.
//! - **`max_ack_pending`** (1,000 unless set) is for all workers of the consumer together: no less than the sum of what they hold.
//!   With 1 the messages are in order.
//! - **`max_age`** of the stream is the redelivery horizon, unless the consumer sets one; without it a message may come for ever.
//! - A duplicate that is *sent* twice within the stream's duplicate window under one `Nats-Msg-Id` is dropped by the server. What is
//!   *delivered* twice is not.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The first program of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod received;
mod source;
mod taking;

pub use idem_runtime::message::{BrokerError as Error, Consumer, Summary};
pub use received::{DELIVERIES, REASON, Received};
pub use source::Source;
