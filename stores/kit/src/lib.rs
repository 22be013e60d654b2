//! Parts that the stores share, for authors of stores. A store does not need them to keep the contract.
//!
//! [`group_commit`] collects the operations that wait at the same moment and runs them together on a session
//! of the store's server. The module `sql` has further parts that only stores of SQL servers need. The module
//! `cas` is a whole store over any service with compare-and-swap.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "cas")]
#[cfg_attr(docsrs, doc(cfg(feature = "cas")))]
pub mod cas;
pub mod columns;
pub mod group_commit;
pub mod hints;
pub mod limits;
pub mod network;
pub mod own_runtime;
pub mod purging;
pub mod retry;
#[cfg(feature = "sql")]
#[cfg_attr(docsrs, doc(cfg(feature = "sql")))]
pub mod sql;
pub mod step_bytes;
mod store_by;
