//! AWS Lambda: batches of records, each processed separately.
//!
//! Owns the rule that one record never fails another. This module uses the types of `message` and knows no
//! store.

pub mod batch;
mod records;
