//! Tests of the messages for uses that must not compile. Uses that must compile are in `pass`, and `tests/it`
//! compiles them.
//!
//! The goldens belong to the toolchain that the workspace names. `TRYBUILD=overwrite` writes them again; then
//! read each change.

#[test]
fn every_mistake_is_explained_where_it_is() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
