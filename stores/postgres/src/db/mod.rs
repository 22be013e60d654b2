//! Connections, names and layouts, which the store and the outbox share.
//!
//! Knows nothing of records and messages.

pub(crate) mod connector;
mod encryption;
pub(crate) mod failure;
mod hosts;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod source;

/// The server's time, in microseconds. Each statement reads it once, after its snapshot was taken.
pub(crate) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
