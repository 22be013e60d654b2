//! The errors for tables that a store must not use.

use std::fmt::Display;

use idem_core::StoreError;

/// The error for a table of another program.
#[must_use]
pub fn foreign(table: &str) -> StoreError {
    StoreError::configuration(format!(
        "the table {table} is not idem's: it names no version of its layout; choose another name with `table`"
    ))
}

/// The error for a table with a layout that only a later version of idem knows.
#[must_use]
pub fn too_new(table: &str, version: impl Display, newest: impl Display) -> StoreError {
    StoreError::configuration(format!(
        "the table {table} has layout {version}, and this version of idem knows up to {newest}; use a newer idem"
    ))
}
