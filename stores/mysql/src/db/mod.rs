//! Connections, errors, and the migration of the tables. This module knows nothing about records.

pub(crate) mod connector;
pub(crate) mod failure;
pub(crate) mod schema;
pub(crate) mod session;
