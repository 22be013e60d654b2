//! What workers need to know of their store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::db::connector::Connector;
use crate::statements::Statements;

/// What a worker needs to know.
pub(crate) struct Setting {
    pub(crate) connector: Connector,
    pub(crate) statements: Arc<Statements>,
    /// How many of them there may be.
    pub(crate) connections: usize,
    /// The longest text of one exchange, in bytes.
    pub(crate) most_bytes: usize,
    /// Whether the table says that transactions of callers are in use, as far as this process has seen.
    pub(crate) has_transactions: AtomicBool,
}
