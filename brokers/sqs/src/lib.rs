//! Idempotent workers on Amazon SQS: a [`Source`] gives the messages of a queue to
//! [`idem::message::Consumer`](Consumer), and settles each with SQS. For AWS Lambda, which polls itself, use `idem::lambda`.
//!
//! ```no_run
//! use idem_runtime::{Error, MemoryStore, Operation};
//! use idem_sqs::{Consumer, Source};
//!
//! # async fn first(client: aws_sdk_sqs::Client, orders: &str, dead_letters: &str) -> Result<(), idem_sqs::Error> {
//! // A store of your own in its place: results in this one end with the process.
//! let store = MemoryStore::new();
//! let ship = Operation::new("orders.ship");
//! let summary = Source::new(client, orders, dead_letters)
//!     .run(Consumer::new().concurrency(10), |order| {
//!         let order = order.body().unwrap_or_default().to_owned();
//!         ship.run(&store, order, || async { Ok::<_, Error>("parcel 7".to_owned()) })
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! | idem decides | SQS gets |
//! |---|---|
//! | acknowledge | `DeleteMessageBatch`, with up to nine others |
//! | retry after a time | `ChangeMessageVisibility` to that time, in whole seconds |
//! | reject | a copy to the dead letters (attributes kept; [`REASON`] added), then the deletion |
//! | give back, at the shutdown | `ChangeMessageVisibility` to 0 |
//! | still in work | `ChangeMessageVisibility` to the queue's visibility timeout, every third of it |
//!
//! On a FIFO queue the messages of a group are handled in order, and one that is retried is retried in its place.
//!
//! # Limits of SQS
//!
//! - **12 hours** from its receipt SQS shows a message again, even if its visibility was extended: longer pauses are cut.
//! - **`maxReceiveCount`** of a redrive policy counts every receipt, those of dead workers and of pauses included: SQS then moves the message
//!   to the redrive queue itself, without a reason. Set it well above [`max_tries`](Consumer::max_tries) and `max_attempts`.
//! - **10 attributes** a message: a dead letter that has ten carries no reason.
//! - **Retention** of a dead letter on a standard queue counts from when its message was *first* sent only if SQS moved it: a copy of this
//!   crate begins anew. It is 14 days at the most.
//! - **120,000 messages in flight** (standard), 20,000 (FIFO): SQS gives no more until some are deleted.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The first program of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod deletes;
mod failed;
mod received;
mod source;
mod taking;

pub use idem_runtime::message::{BrokerError as Error, Consumer, Summary};
pub use received::{DELIVERIES, REASON, Received};
pub use source::Source;
