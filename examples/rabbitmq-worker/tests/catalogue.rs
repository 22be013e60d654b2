//! The catalogue has not changed, so a new version finds the records of the previous one.

use rabbitmq_worker as _;

#[test]
fn the_catalogue_is_as_it_was_committed() {
    idem_testing::assert_catalogue("idem.catalogue");
}
