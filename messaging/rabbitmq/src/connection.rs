//! How a source connects to RabbitMQ, and the routes that it publishes to.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use lapin::Connection;

pub(crate) const OPEN: &str = "open a channel";

pub(crate) type Connect = Arc<dyn Fn() -> BoxFuture<'static, lapin::Result<Connection>> + Send + Sync>;

/// An exchange and a routing key to publish to.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

impl Route {
    pub(crate) const fn queue(name: String) -> Self {
        Self { exchange: String::new(), routing_key: name }
    }
}

pub(crate) async fn close_connection(connection: &Connection) {
    // An error means that the connection is lost, so it is closed already.
    let _ = connection.close(200, "done".into()).await;
}
