//! Runs the operations of a store on sessions of its server; operations that wait at the same moment run
//! together.
//!
//! An operation waits in a queue for a worker. A worker is a task: it takes all operations that may run
//! together, and waits for the server's disk once for all of them. Each calling runtime (up to a limit) has
//! its own queue and sessions, because a session belongs to the runtime that opened it.
//!
//! Some work must continue when the calling runtime is blocked or gone, above all renewals. This work goes
//! through the queue of the [stores' own runtime](crate::own_runtime). There, a task (the watch) checks all
//! queues again and again, by a clock that no test pauses. It ends attempts that take too long, and closes
//! sessions that nobody needs.
//!
//! This module knows nothing about SQL: a store describes its abilities as a [`Server`].

mod backlog;
mod operation;
mod queue;
mod server;
mod watch;
mod worker;

pub use self::backlog::{Class, Keys, Kind};
pub use self::operation::{Answer, Answers, Op, Operation, Seen, Ticket};
pub use self::queue::Queues;
pub use self::server::{Failure, Server};
