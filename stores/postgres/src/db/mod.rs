//! Connections, names and layouts of tables. The store uses them, and so do crates with their own tables
//! beside the records, such as `idem-outbox`.
//!
//! This module knows nothing about records and messages.

pub mod connector;
pub(crate) mod failure;
mod hosts;
pub mod schema;
pub mod session;
pub mod settings;
pub mod source;

/// The server's time when it evaluates this expression, in microseconds. A statement evaluates it after
/// taking its snapshot.
pub const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
