//! The catalogue has not changed, so a new version finds the records of the previous one.

/// The program as a module, since the page shows it without tests.
#[allow(dead_code)]
#[path = "../src/main.rs"]
mod program;

#[test]
fn the_catalogue_is_as_it_was_committed() {
    idem_testing::assert_catalogue("idem.catalogue");
}
