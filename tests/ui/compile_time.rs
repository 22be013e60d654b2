//! Tests of the messages for uses that must not compile. Uses that must compile are in `pass`, and `tests/it`
//! compiles them.
//!
//! The files `*.stderr` have the messages of the toolchain that the workspace names. With another toolchain,
//! the messages may differ. `TRYBUILD=overwrite` writes these files again; then read each change.

#[test]
fn every_mistake_is_explained_where_it_is() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
