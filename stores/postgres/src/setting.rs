//! The settings of a store.

use std::sync::Arc;

use crate::db::connector::Connector;
use crate::statements::Statements;

/// The settings of a store.
pub(crate) struct Setting {
    pub(crate) connector: Connector,
    pub(crate) statements: Arc<Statements>,
    /// The limit of sessions in each runtime.
    pub(crate) connections: usize,
}
