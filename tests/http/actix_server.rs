//! An actix-web server on a real socket. `serve` passes its requests to an axum router.

use std::net::SocketAddr;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use futures_util::StreamExt as _;
use idem::Store;
use idem::http::{IdempotencyLayer, Recording};
use idem_actix::Idempotency;
use idem_test_servers::web::{Answer, Request as Sent};
use tower::ServiceExt as _;

/// A server in this process. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    handle: ServerHandle,
}

impl Server {
    pub(crate) fn start(configure: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static) -> Self {
        let app = move || App::new().configure(configure.clone());
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { address, handle }
    }

    pub(crate) async fn ask(&self, request: Sent) -> Answer {
        request.ask(self.address).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The call of `stop` alone stops the server. The future, which is dropped, would only wait for the
        // end.
        drop(self.handle.stop(false));
    }
}

/// Serves the routes behind the middleware.
pub(crate) async fn serve<St: Store>(router: Router, layer: IdempotencyLayer<St>) -> Server {
    Server::start(move |routes| {
        let router = router.clone();
        let handler = web::to(move |request, payload| handle(router.clone(), request, payload));
        routes.service(web::scope("").wrap(Idempotency::new(layer.clone())).default_service(handler));
    })
}

/// Passes a request to the router, and the router's response to actix-web.
async fn handle(router: Router, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    let mut sent = Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    for (name, value) in request.headers() {
        sent = sent.header(name.as_str(), value.as_bytes());
    }
    let body = payload.to_bytes_limited(1 << 30).await.unwrap().unwrap();
    let response = router.oneshot(sent.body(Body::from(body)).unwrap()).await.unwrap();
    to_actix(response)
}

fn to_actix(response: Response<Body>) -> HttpResponse {
    let mut answer = HttpResponse::build(response.status().as_u16().try_into().unwrap());
    for (name, value) in response.headers() {
        answer.append_header((name.as_str(), value.as_bytes()));
    }
    if let Some(recording) = response.extensions().get::<Recording>() {
        answer.extensions_mut().insert(*recording);
    }
    let length = http_body::Body::size_hint(response.body()).exact();
    let said = response.headers().get("content-length").and_then(|said| said.to_str().unwrap().parse().ok());
    let pieces = response.into_body().into_data_stream().map(|piece| piece.map_err(std::io::Error::other));
    match said.or(length) {
        Some(length) => answer.body(actix_web::body::SizedStream::new(length, pieces)),
        None => answer.streaming(pieces),
    }
}
