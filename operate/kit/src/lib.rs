//! What a person does with the records of a store: looks at them, settles them, and finds in the audit trail who did what.
//!
//! The command `idem` and the console are built on it. It knows a store by its public interface only, and
//! neither HTTP servers nor command lines.

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
