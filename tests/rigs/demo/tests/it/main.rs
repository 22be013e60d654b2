//! The rig on real brokers and stores, and its parts.

mod function;
mod runs;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_demo");

#[test]
fn the_catalogue_is_as_it_was_committed() {
    idem_testing::assert_catalogue("idem.catalogue");
}
