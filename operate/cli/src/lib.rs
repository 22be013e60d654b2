//! Opens a store by its URL. The command `idem` uses this library, and so can other programs that get a
//! store's URL from a command line.

#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "object-cloud")]
mod object;
pub mod store;
