//! Several workers, a store behind a faulty network and a clock that jumps, in one program and from one seed.
//!
//! The engine is the shipped one. A history is what a [`plan`] comes to: it is the same each time, because the clock is tokio's paused
//! one, one thread runs everything, and each random number comes from the seed.

pub mod body;
pub mod caller;
pub mod checks;
pub mod history;
pub mod network;
pub mod plan;
pub mod shrink;
pub mod transaction;
pub mod web;
pub mod world;
