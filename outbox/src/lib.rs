//! The outbox: messages that are written with a transaction's effects, and published after its commit.
//!
//! An effect in the database and a message to a broker cannot be one commit. So [`Outbox::enqueue`] writes
//! the message into a table, in the caller's transaction: the message exists if and only if the effects do. A
//! [`Relay`] then publishes it, at least once and always under the same [id](Message::id), so that the broker
//! or the consumer can recognise a repeat. In one topic, messages are published in the order in which they
//! were enqueued, except a message that a relay has set aside.
//!
//! ```no_run
//! use idem::outbox::{Message, Outbox, PublishError, Publisher, Relay};
//! # #[derive(Clone)] struct Broker;
//! # impl Broker { async fn send(&self, _: &str, _: &str, _: &[u8]) -> Result<(), std::io::Error> { Ok(()) } }
//!
//! struct ToBroker(Broker);
//!
//! impl Publisher for ToBroker {
//!     async fn publish(&self, message: &Message) -> Result<(), PublishError> {
//!         let sent = self.0.send(&message.topic, message.id.as_str(), &message.payload).await;
//!         sent.map_err(PublishError::unavailable)
//!     }
//! }
//!
//! # async fn example(pool: sqlx::PgPool, broker: Broker) -> Result<(), Box<dyn std::error::Error>> {
//! let outbox = Outbox::from_pool(&pool).await?;
//!
//! // In the service, with the transaction's other writes:
//! let mut tx = pool.begin().await?;
//! outbox.enqueue(&mut tx, "orders", r#"{"order":42}"#).await?;
//! tx.commit().await?;
//!
//! // In the same or another process, any number of times:
//! let relay = Relay::new(outbox, ToBroker(broker));
//! tokio::spawn(async move { relay.run(std::future::pending()).await });
//! # Ok(())
//! # }
//! ```
//!
//! # Events and metrics
//!
//! Events have the target `idem::outbox` and never contain a message's id or payload. The page
//! `docs/events.md` of the book lists them, and the metrics of the feature `metrics`.
//!
//! # Structure
//!
//! This crate owns the table, and the rules for when a message is published and by which relay. It knows no
//! broker. `builder` and `handle` are the public API of services, and `operator` is the public API of
//! operators. `layout` and `statements` contain the SQL, `link` is a connection, and `relay` publishes.

mod builder;
mod error;
mod handle;
mod layout;
mod link;
mod message;
mod operator;
mod publisher;
mod relay;
mod report;
mod statements;

pub use builder::OutboxBuilder;
pub use error::OutboxError;
pub use handle::Outbox;
pub use message::{Message, MessageId};
pub use operator::{Counts, SetAside};
pub use publisher::{PublishError, PublishErrorKind, Publisher};
pub use relay::{OnPoison, Relay};
