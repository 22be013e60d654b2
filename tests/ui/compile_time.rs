//! What compiles, and the messages for what does not.
//!
//! The goldens are of the toolchain that the workspace names; `TRYBUILD=overwrite` makes them anew, and
//! then each is to be read.

#[test]
fn every_valid_use_of_a_whole_crate_compiles() {
    trybuild::TestCases::new().pass("pass/crates/*.rs");
}

#[test]
fn every_mistake_is_explained_where_it_is() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
