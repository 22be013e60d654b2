//! Connections, errors, names and the layout's migration. Knows nothing of records.

pub(crate) mod connector;
pub(crate) mod failure;
pub(crate) mod schema;
pub(crate) mod session;
