//! The checks, one file for each theme. Most checks have their expectations written out in their own code.
//! The checks of `transitions` and `histories` expect what the protocol's functions return. Those functions
//! have tests and a model check of their own.

pub(super) mod dropped;
pub(super) mod duels;
pub(super) mod fences;
pub(super) mod histories;
pub(super) mod keys;
pub(super) mod listing;
pub(super) mod purge;
pub(super) mod races;
pub(super) mod results;
pub(super) mod steps;
pub(super) mod time;
pub(super) mod transitions;
