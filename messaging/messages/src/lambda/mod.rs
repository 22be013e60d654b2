//! AWS Lambda: batches of records, each processed separately.
//!
//! Owns the rule that the failure of one record never makes another record fail. This module uses the types
//! of `message` and knows no store.

pub mod batch;
mod records;
