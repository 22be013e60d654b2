//! Runs the cases on axum, whose routers accept the tower layer unchanged. Also runs the tests of features
//! that only tower has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "cases/mod.rs"]
mod cases;
mod framework {
    pub(crate) use idem_test_servers::web::Server;

    /// Serves the routes behind the layer, on a real socket.
    pub(crate) async fn serve<St: idem::Store>(
        router: axum::Router,
        layer: idem::http::IdempotencyLayer<St>,
    ) -> Server {
        Server::start(router.layer(layer)).await
    }
}
mod openapi;
mod operations;
#[path = "../it/support/mod.rs"]
mod support;
mod tower_only;
