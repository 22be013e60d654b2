//! AWS Lambda: batches of records, of which each is done on its own.
//!
//! Owns the rule that one record never fails another. It stands on the message vocabulary and knows no
//! store.

pub mod batch;
mod records;
