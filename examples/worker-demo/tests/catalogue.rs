//! Records of the version before are found: the catalogue is as it was committed.

use worker_demo as _;

#[test]
fn the_catalogue_is_as_it_was_committed() {
    idem_testing::assert_catalogue("idem.catalogue");
}
