//! Tests of uses that must compile, and of the messages for uses that must not.
//!
//! The goldens belong to the toolchain that the workspace names. `TRYBUILD=overwrite` makes them again; read each of
//! them afterwards.

#[test]
fn every_valid_use_of_a_whole_crate_compiles() {
    trybuild::TestCases::new().pass("pass/crates/*.rs");
}

#[test]
fn every_mistake_is_explained_where_it_is() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
