//! Runs the operations of a store on sessions of its server, those that wait at the same moment together.
//!
//! An operation waits in a queue for a worker, a task that takes all that may go together and waits once for the server's
//! disk. Each runtime that calls has a queue and sessions of its own, since a session belongs to the runtime that
//! opened it. What must be done when that runtime is blocked or gone, renewals first of all, goes through the queue of the
//! [stores' own runtime](crate::own_runtime). There, a watch looks after all of them by a clock that no test pauses: it ends
//! attempts that take too long, and closes sessions that nobody needs.
//!
//! It knows nothing of SQL: a store says what it can do as a [`Server`].

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
