//! Code that the model check, the random histories and the tests of the mutants share. See
//! `docs/internals/model.md`.
#![allow(dead_code, unreachable_pub)]

pub use idem_runtime::protocol;

#[macro_use]
pub mod promise;
#[macro_use]
pub mod mutants;

pub mod model;
pub mod one_key;
pub mod rules;
pub mod rules_store;
pub mod setup;
pub mod shadow;
pub mod symmetry;
pub mod worker;
pub mod world;
