//! Makes async functions safe to call twice.
pub use idem_runtime::*;
