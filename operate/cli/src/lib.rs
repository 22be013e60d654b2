//! Opens a store by its URL. The command `idem` uses this, and so can other programs that take a store from a command line.

#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "object-cloud")]
mod object;
pub mod store;
