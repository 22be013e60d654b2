//! Idempotent workers on Amazon SQS: a [`Source`] passes the messages of a queue to
//! [`idem::message::Consumer`](Consumer), and settles each with SQS. AWS Lambda polls the queue itself: use `idem::lambda` there.
//!
//! ```no_run
//! use idem::{Error, MemoryStore, Operation};
//! use idem_sqs::{Consumer, Source};
//!
//! # async fn first(client: aws_sdk_sqs::Client, orders: &str, dead_letters: &str) -> Result<(), idem_sqs::Error> {
//! // Use a store that survives the process: the results in this one are lost at its end.
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
//! | retry after a time | `ChangeMessageVisibility` to that time, rounded up to whole seconds |
//! | reject | a copy to the dead letters (attributes kept; those of [`DeadLetter`](idem_messages::DeadLetter) added), then the deletion |
//! | give back, at the shutdown | `ChangeMessageVisibility` to 0 |
//! | still held | `ChangeMessageVisibility` to the queue's visibility timeout, each time a third of it has passed |
//! | the dead letter cannot be sent | nothing: the message is held, and the copy is repeated after 1 s, 2 s, .. 30 s |
//!
//! The source asks for as many messages as the consumer has room for, at most ten, and holds no others. With a
//! [`prefetch`](Consumer::prefetch) above the concurrency it needs fewer requests, and the waiting messages are kept too.
//!
//! On a FIFO queue the messages of a `MessageGroupId` are handled in order, unless [`Source::group_by`] says which. A message that is retried keeps its place in that order.
//!
//! # Limits of SQS
//!
//! - **12 hours** after its receipt SQS delivers a message again, even if its visibility was extended. Longer pauses are shortened.
//! - **`maxReceiveCount`** of a redrive policy counts every receipt, including receipts by dead workers and
//!   after a pause. Above it SQS itself moves the message to the redrive queue, without a reason. Set it well
//!   above [`max_tries`](Consumer::max_tries) and `max_attempts`.
//! - **10 attributes** per message: the dead letter of a message that has ten carries no reason, of one that has nine the reason only. The
//!   order is reason, error, tries, operation, key, origin, deliveries, message, consumer.
//! - **Redrive**: a dead letter that is left out is visible again when the redrive ends. In a FIFO queue it hides the later ones of its group: repeat the
//!   redrive.
//! - **Retention** is 14 days at most. A dead letter of this crate is a new message, so its retention begins anew. A message that SQS
//!   itself moves from a standard queue keeps the time at which it was first sent.
//! - **120,000 messages in flight** on a standard queue, 20,000 on a FIFO queue: SQS delivers no more until some are deleted.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The doc tests compile the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod deletes;
mod failed;
mod letters;
mod received;
mod source;
mod taking;

pub use idem_messages::{BrokerError as Error, Consumer, Summary};
pub use received::Received;
pub use source::Source;
