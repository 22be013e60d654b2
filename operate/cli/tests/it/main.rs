//! The operator's command `idem`, run without a terminal as by a script, and on a terminal as by a person.

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
