//! What the stores share, for people who write a store. No store has to use it to keep the contract.
//!
//! [`group_commit`] gathers the operations that wait at the same moment and runs them together on a session of the store's server;
//! [`Records`] puts requests to it as the process remembers their keys.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod group_commit;
mod records;

pub use self::records::Records;
pub use idem_core::support::{hints, own_runtime, retry};
