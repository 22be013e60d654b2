//! The store in memory, a store that is chosen at run time, and a store that keeps nothing.
//!
//! The `Store` trait, the stores with a client library, and the wrappers of stores are in other crates.

mod disabled;
mod dynamic;
mod memory;

pub use disabled::Disabled;
pub use dynamic::DynStore;
pub use memory::MemoryStore;
