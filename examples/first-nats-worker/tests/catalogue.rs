//! Records of the version before are found: the catalogue is as it was committed.

/// The program as a module, since the page shows it without tests.
#[allow(dead_code)]
#[path = "../src/main.rs"]
mod program;

#[test]
fn the_catalogue_is_as_it_was_committed() {
    idem_testing::assert_catalogue("idem.catalogue");
}
