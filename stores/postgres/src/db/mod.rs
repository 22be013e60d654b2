//! Connections, names and layouts: what the store and the outbox share.
//!
//! It knows neither records nor messages.

pub(crate) mod connector;
pub(crate) mod encryption;
pub(crate) mod failure;
pub(crate) mod identifier;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod settings;
