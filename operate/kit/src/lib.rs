//! What a person does with the records of a store: looks at them, settles them, and reads in the audit trail
//! who did what.
//!
//! The command `idem` and the console are built on this crate. This crate uses only a store's public API, and
//! knows neither HTTP servers nor command lines.

pub mod access;
pub mod act;
pub mod audit;
pub mod error;
pub mod evidence;
pub mod figures;
pub mod find;
pub mod prometheus;
pub mod result;
pub mod show;
pub mod text;
pub mod walk;

pub use access::Access;
pub use error::{Error, Kind, Result};
