//! A node that is killed and started again.

use std::future::pending;
use std::time::Duration;

use idem_broker_tests::{Failed, Queue as _, Shop, until};
use idem_rabbitmq::{Received, Source};

use crate::support::{Node, Orders};

#[tokio::test]
async fn a_node_that_is_restarted_loses_nothing_and_the_worker_goes_on() {
    let (node, shop) = (Node::start(), Shop::default());
    let orders = Orders::open(&node, "orders").await;
    for order in 0..200 {
        orders.send(&order.to_string()).await;
    }
    drop(orders);
    let (source, handler) =
        (Source::new(node.url(), "orders", "orders-dead"), shop.ships(Duration::from_millis(50)));
    // In a task of its own, which also shows that the future of `run` is `Send`.
    let worker = tokio::spawn(async move {
        let handle = |order: &Received| handler(String::from_utf8(order.data.clone()).unwrap());
        source.run(Shop::settings(), handle).await
    });
    until("it works", async || shop.effects().len() > 20).await;
    node.restart().await;
    until("the queue is empty", async || node.left("orders").await == 0).await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut effects = shop.effects();
    assert_eq!(effects.len(), 200);
    effects.dedup();
    assert_eq!(effects.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_is_an_error() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://guest:guest@{}/%2f", silent.local_addr().unwrap());
    let source = Source::new(url, "orders", "orders-dead");
    let handle = |_: &Received| pending::<Result<(), Failed>>();
    let error = source.run(Shop::settings(), handle).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot connect: RabbitMQ did not answer in time");
}
