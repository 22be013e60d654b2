//! The settings of a store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use idem_store_kit::hints::Hints;

use crate::db::connector::Connector;
use crate::statements::Statements;

pub(crate) struct Setting {
    pub(crate) connector: Connector,
    pub(crate) statements: Arc<Statements>,
    /// The text before a statement in a caller's transaction. With this text, the statement fails instead of
    /// waiting for a lock, and the transaction stays open. Empty if the server cannot do this.
    pub(crate) at_once: &'static str,
    /// The keys whose steps this process has recorded. A completion of such a key takes the long way (see
    /// `change`), because it must delete the steps.
    pub(crate) stepped: Hints,
    /// The limit of connections in each runtime.
    pub(crate) connections: usize,
    /// Approximate upper limit for the text of one exchange that carries several operations, in bytes.
    pub(crate) most_bytes: usize,
    /// Whether this process knows that callers use transactions: it has read this fact from the meta table,
    /// or stored it there.
    pub(crate) has_transactions: AtomicBool,
}
