//! Idempotent workers on RabbitMQ: a [`Source`] passes the messages of a queue to
//! [`idem::message::Consumer`](Consumer), and settles each message with RabbitMQ.
//!
//! ```no_run
//! use idem_rabbitmq::{Consumer, Source};
//! use idem::{Error, MemoryStore, Operation};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Use a store that survives the process. A `MemoryStore` loses its results when the process ends.
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
//! | retry after a time | a confirmed copy in a delay queue (headers kept), then `basic.ack` |
//! | reject | a confirmed copy in the dead letters (headers kept, headers of [`DeadLetter`](idem_messages::DeadLetter) added), then `basic.ack` |
//! | give back, at the shutdown | `basic.nack` with `requeue` |
//! | RabbitMQ refuses a copy, has no queue for it, or blocks publishers by an alarm | nothing: the message stays unacknowledged, and the copy is repeated after 1 s, 2 s, .. 30 s |
//!
//! A copy has the headers [`DELIVERED`](idem_messages::DELIVERED), [`EXCHANGE`] and [`ROUTING_KEY`]. A
//! message that comes back from a delay queue shows the exchange and the routing key that it was first sent
//! with. If a worker dies between the copy and the `basic.ack`, the message exists twice. The second message
//! then gets the recorded result, or becomes a second dead letter.
//!
//! # Delay queues
//!
//! RabbitMQ cannot delay a message, and expires only the first message of a queue. So there is one queue for
//! each pause, such as `orders-after-1000ms`, and no message waits behind a message with a longer pause. A
//! pause is rounded up to the next of 0.1 s, 0.3 s, 1 s, 2 s, 5 s, 10 s, 30 s, 1 min, 2 min, 5 min, 15 min,
//! 1 h, 6 h and 24 h. A pause of more than 24 h is shortened to 24 h.
//!
//! The source declares each queue when a retry first needs it. Each is a quorum queue that dead-letters at
//! least once: a message leaves the delay queue only after the message's own queue has confirmed it. If the
//! message's queue is full or has no majority for a while, RabbitMQ repeats the transfer after
//! `dead_letter_worker_publisher_confirm_timeout` (3 minutes unless set).
//!
//! The user of the connection needs the permission to configure the names of all delay queues. At the start,
//! the source declares the queue of the shortest pause, and checks the other delay queues that exist. Delay
//! queues need RabbitMQ 3.10 or later.
//!
//! # Limits of RabbitMQ
//!
//! - **`consumer_timeout`** (30 minutes unless set): RabbitMQ closes a channel on which a message stays
//!   unacknowledged for longer. A worker cannot extend this time, so a handler must end within it, including
//!   the waits for a failing store and for refused dead letters.
//! - **`x-delivery-limit`** of a quorum queue (20 unless set, since RabbitMQ 4.0) limits how often a message
//!   can be given back or come back from a dead worker. The copies of retries do not count. Beyond the limit,
//!   RabbitMQ drops the message, or sends it to the queue's own dead-letter exchange.
//! - **Redrive**: a message goes back to the queue of its worker. Its headers contain the exchange and the
//!   routing key that it was first sent with.
//! - **Power cut**: RabbitMQ 3 writes the names of queues to its disk with a delay. If a power cut comes
//!   shortly after a delay queue was declared (at the first retry with its pause), RabbitMQ may lose the
//!   queue with its messages.
//! - **Order**: messages that are in work at the same time have no order. With [`Source::group_by`] the
//!   messages of a group are handled in order. With several workers, this needs a queue with
//!   `x-single-active-consumer`.
//! - **Redelivery horizon**: set [`redelivery_horizon`](Consumer::redelivery_horizon) to the queue's
//!   `x-message-ttl`. Without that argument the queue may deliver a message again at any time.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The doc tests compile the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod connection;
mod copy;
mod letters;
mod link;
mod publisher;
mod received;
mod source;
mod taking;

pub use copy::{EXCHANGE, ROUTING_KEY};
pub use idem_messages::{BrokerError as Error, Consumer, Summary};
pub use received::Received;
pub use source::Source;
