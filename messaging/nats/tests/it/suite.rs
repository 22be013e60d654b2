//! The cases that every broker's crate must pass.

use idem_broker_tests::{
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on,
    a_message_stays_while_it_cannot_be_set_aside, a_message_that_waits_for_a_handler_is_kept_by_its_worker,
    every,
};
use idem_test_servers::Nats;

use crate::support::Orders;

#[tokio::test]
async fn a_nats_source_does_what_every_source_must() {
    let mut nats = Nats::start();
    let url = nats.url();
    Box::pin(every(async |name| Orders::open(&url, name).await)).await;
    let orders = Orders::open(&url, "lost").await;
    let broken = Orders { dead: "nowhere".to_owned(), ..orders.clone() };
    a_message_stays_while_it_cannot_be_set_aside(&orders, &broken).await;
    a_message_that_waits_for_a_handler_is_kept_by_its_worker(&Orders::open(&url, "waits").await).await;
    let restart = async || {
        nats.server().kill();
        nats.server().restart();
    };
    let orders = Orders::open(&url, "restarted").await;
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(orders, restart).await;
}
