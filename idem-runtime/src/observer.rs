//! How the engine reports each call to the code that made the call. Use this module in code that acts on the
//! outcome of a call, such as a consumer of messages or of batches.
//!
//! A consumer runs each handler under an observer of its own, and settles the message by what the observer
//! received:
//!
//! ```
//! # use idem_runtime as idem;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use idem::observer::{CallEnd, CallEvent, CallObserver, observed_by};
//! use idem::{Error, MemoryStore, Operation};
//!
//! /// When to deliver the message again.
//! #[derive(Default)]
//! struct Redelivery(Mutex<Option<Duration>>);
//!
//! impl CallObserver for Redelivery {
//!     fn event(&self, event: &CallEvent<'_>) {
//!         if let CallEvent::Ended(CallEnd::Released { retry_after, .. }) = event {
//!             *self.0.lock().unwrap() = Some(*retry_after);
//!         }
//!     }
//! }
//!
//! let (store, redelivery) = (MemoryStore::new(), Arc::new(Redelivery::default()));
//! let ship = Operation::new("orders.ship").retry_after(Duration::from_secs(5));
//! let handler = ship.run(&store, "order-42", || async { Err::<(), _>(Failure) });
//! assert!(observed_by(redelivery.clone(), handler).await.is_err());
//! assert_eq!(*redelivery.0.lock().unwrap(), Some(Duration::from_secs(5)));
//! # }
//! # struct Failure;
//! # impl From<idem_runtime::Error> for Failure {
//! #     fn from(_: idem_runtime::Error) -> Self {
//! #         Self
//! #     }
//! # }
//! ```

pub use crate::engine::{BackgroundWork, CallEnd, CallEvent, CallObserver, in_another_task, observed_by};
