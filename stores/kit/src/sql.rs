//! What stores of SQL servers share: connections, settings, the operations that operators need, and
//! records in a caller's transaction.
//!
//! [`Connector`] opens connections, closes those that are too old, and lends a separate connection to
//! operations outside a batch. [`Settings`], [`Limits`] and [`Identifier`] check settings. [`Encryption`]
//! says whether others on the network can read the data of a connection. [`failure`] says why a connection
//! failed. [`SharedStore`] is the state of a store.

mod connector;
mod encryption;
pub mod failure;
mod hosts;
mod identifier;
mod layout;
mod listing;
mod settings;
mod shared_store;
mod source;
mod transaction;

use idem_core::RecordKey;

pub use self::connector::{Connector, Opener, Session, Use};
pub use self::encryption::Encryption;
pub use self::hosts::Host;
pub use self::identifier::Identifier;
pub use self::layout::{foreign, too_new};
pub use self::listing::page;
pub use self::settings::{Limits, Settings};
pub use self::shared_store::{Housekeeping, SharedStore};
pub use self::source::Source;
pub use self::transaction::{HELD, displaced, innermost, recorded, roll_back, taken};

/// Scope and key, as the bytes in their columns.
pub type Name<'n> = (&'n [u8], &'n [u8]);

/// The name of a record.
#[must_use]
pub fn name(key: &RecordKey) -> Name<'_> {
    (key.scope().as_str().as_bytes(), key.key().as_str().as_bytes())
}
