//! Opens a store by its URL: what the command `idem` shares with programs that take a store from a command line.

#[cfg(feature = "dynamodb")]
mod dynamodb;
pub mod store;
