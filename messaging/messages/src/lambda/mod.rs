//! AWS Lambda: batches of records, each processed separately.
//!
//! Owns the rule that a failed record has no effect on the records of other groups. This module knows no
//! store.

pub mod batch;
mod records;
