//! The checks, one file for each theme. A check takes its expectations from the text of the protocol, never from its
//! functions.

pub(super) mod attempts;
pub(super) mod claim;
pub(super) mod complete;
pub(super) mod crash;
pub(super) mod doubt;
pub(super) mod duels;
pub(super) mod expiry;
pub(super) mod fences;
pub(super) mod fingerprints;
pub(super) mod formats;
pub(super) mod keys;
pub(super) mod listing;
pub(super) mod lost;
pub(super) mod outage;
pub(super) mod purge;
pub(super) mod races;
pub(super) mod records;
pub(super) mod release;
pub(super) mod renew;
pub(super) mod replay;
pub(super) mod resolve;
pub(super) mod results;
pub(super) mod steps;
