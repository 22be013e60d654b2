//! Connections, errors, names and the layout's migration. This module knows nothing about records.

pub(crate) mod connector;
pub(crate) mod failure;
pub(crate) mod schema;
pub(crate) mod session;
