//! The first phase: everything before the first request to the store.
//!
//! Owns the settings of an operation and their checks ([`operation`], [`policy`], [`site`]), and what one
//! call knows ([`call`]): key, policy, runtime, observer. It asks no store.

pub(super) mod call;
pub(super) mod operation;
pub(super) mod policy;
pub(super) mod site;
