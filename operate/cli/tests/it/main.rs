//! The operator's command `idem`, run as a script and as a person would.

#[cfg(feature = "console")]
mod console;
#[path = "../../../../stores/dynamodb/tests/it/support/mod.rs"]
mod dynamodb_support;
mod errors;
mod idem_command;
mod layers;
mod looking;
mod many;
mod ops;
mod outbox;
mod privacy;
mod records;
mod resolving;
mod responses;
mod servers;
