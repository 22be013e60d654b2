//! What the stores share, for people who write a store. No store has to use it to keep the contract.
//!
//! [`group_commit`] gathers the operations that wait at the same moment and runs them together on a session of the store's server;
//! [`Records`] puts requests to it as the process remembers their keys.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod group_commit;
pub mod hints;
pub mod network;
pub mod own_runtime;
mod records;
pub mod retry;
pub mod step_bytes;

pub use self::records::Records;
