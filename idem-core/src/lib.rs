//! The contract of `idem`: the protocol as pure functions, the keys, and the [`Store`] trait.
//!
//! This crate is what a store depends on. It knows no engine and no database client. To use the library, take
//! the crate `idem-rs`, which re-exports what a program needs of this crate. To write a store, start at
//! [`Store`]. The crate `idem-store-kit` has the code that our stores share.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Only tests, examples and benches may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod defaults;
pub mod inspection;
pub mod listing;
pub mod protocol;
pub mod transaction;

mod error;
mod key;
mod store;
mod waiters;

pub use error::{StoreError, StoreErrorKind};
#[doc(hidden)]
pub use key::AnyPart;
pub use key::{
    Key, KeyBuilder, KeyDigest, KeyError, KeyPart, MAX_KEY_BYTES, MAX_SCOPE_BYTES, RESERVED_SCOPES,
    RecordKey, Scope, framed_digest, hex,
};
pub use protocol::{Fence, Fingerprint, OnCrash};
pub use store::Store;
pub use waiters::Waiters;
