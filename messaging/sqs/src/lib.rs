//! Idempotent workers on Amazon SQS: a [`Source`] passes the messages of a queue to
//! [`idem::message::Consumer`](Consumer), and settles each message with SQS. On AWS Lambda use `idem::lambda`
//! instead, because Lambda polls the queue itself.
//!
//! ```no_run
//! use idem::{Error, MemoryStore, Operation};
//! use idem_sqs::{Consumer, Source};
//!
//! # async fn first(client: aws_sdk_sqs::Client, orders: &str, dead_letters: &str) -> Result<(), idem_sqs::Error> {
//! // Use a store that survives the process. A `MemoryStore` loses its results when the process ends.
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
//! | acknowledge | `DeleteMessageBatch`, with up to nine other messages |
//! | retry after a time | `ChangeMessageVisibility` to that time, rounded up to whole seconds |
//! | reject | a copy to the dead letters (attributes kept, attributes of [`DeadLetter`](idem_messages::DeadLetter) added), then the deletion |
//! | give back, at the shutdown | `ChangeMessageVisibility` to 0 |
//! | still held | `ChangeMessageVisibility` to the queue's visibility timeout, each time a third of that timeout has passed |
//! | the dead letter cannot be sent | nothing: the message is held, and the copy is repeated after 1 s, 2 s, .. 30 s |
//!
//! The source requests as many messages as the consumer has room for, at most ten, and holds no others. With
//! a [`prefetch`](Consumer::prefetch) above the concurrency, the source needs fewer requests, and it extends
//! the waiting messages, too.
//!
//! On a FIFO queue, the messages of a `MessageGroupId` are handled in order, unless [`Source::group_by`] sets
//! other groups. A message that is retried keeps its place in that order.
//!
//! # Limits of SQS
//!
//! - **12 hours** after a message's receipt, SQS delivers it again, even if its visibility was extended. The
//!   source shortens a pause that would end later.
//! - **`maxReceiveCount`** of a redrive policy limits the number of all receipts, including receipts by
//!   workers that died and receipts after a pause. Above this number, SQS itself moves the message to the
//!   dead-letter queue of the policy, without a reason. Set it well above [`max_tries`](Consumer::max_tries)
//!   and `max_attempts`.
//! - **10 attributes** per message: a dead letter gets as many attributes of this crate as fit. If the
//!   message has nine attributes, the dead letter gets only the reason; if the message has ten, the dead
//!   letter gets none. The attributes are added in this order: reason, error, tries, operation, key, origin,
//!   deliveries, message, consumer.
//! - **Redrive**: a dead letter that the redrive leaves out becomes visible again when the redrive ends. In a
//!   FIFO queue, such a letter hides the later letters of its group, so repeat the redrive.
//! - **Retention** is 14 days at most. A dead letter of this crate is a new message, so its retention begins
//!   anew. If SQS itself moves a message from a standard queue, the message keeps the time at which it was
//!   first sent.
//! - **120,000 messages in flight** per queue: if so many messages are in flight, SQS delivers no more until
//!   some of them are deleted or become visible again.

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
