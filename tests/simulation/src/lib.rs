//! Several workers, a store behind a faulty network and a clock that jumps, in one program and from one seed.
//!
//! The engine is the same as in users' programs. A history is one execution of a [`plan`]. It is the same
//! each time, because time is tokio's paused clock, one thread runs everything, and each random number comes
//! from the seed.

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
