//! The API on axum.

use std::error::Error;

use axum::Router;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use idem::DynStore;
use idem::http::IdempotencyLayer;
use tokio::net::TcpListener;

use crate::payment::{Answer, Body, CHANGE, Executions, PAY, REFUND, Route, carry_out, events};
use crate::{Metrics, Options, drain};

/// Serves until the process gets the signal to end.
pub(crate) async fn serve(
    options: &Options,
    layer: IdempotencyLayer<DynStore>,
    metrics: Metrics,
) -> Result<(), Box<dyn Error>> {
    let metrics = Router::new().route("/metrics", get(async move || metrics.render()));
    let api = api(layer, options.max_body).merge(metrics);
    let listener = TcpListener::bind(&options.addr).await?;
    // A program that waits for the printed line may send SIGTERM right after the line. So the signal's
    // handler is installed before the line is printed.
    let terminated = idem::terminated();
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, api).with_graceful_shutdown(terminated).await?;
    // The connections are closed, but a handler whose client went away may still run, or its response may not
    // be recorded yet.
    drain().await;
    Ok(())
}

fn api(layer: IdempotencyLayer<DynStore>, max_body: usize) -> Router {
    let handler = |route: &'static Route| {
        async move |State(executions): State<Executions>, body: Bytes| {
            carry_out(&executions, route, &body).await
        }
    };
    let guarded = Router::new()
        .route("/payments", post(handler(&PAY)))
        .route("/payments/{id}", patch(handler(&CHANGE)))
        .route("/refunds", post(handler(&REFUND)))
        .route("/echo", post(echo))
        .route_layer(layer);
    let show = async |State(executions): State<Executions>| executions.show();
    let forget = async |State(executions): State<Executions>| executions.forget();
    let executions = Router::new().route("/executions", get(show).delete(forget));
    guarded.merge(executions).layer(DefaultBodyLimit::max(max_body)).with_state(Executions::default())
}

async fn echo(State(executions): State<Executions>, headers: HeaderMap, body: Bytes) -> Answer {
    executions.echo(headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()), body)
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let body = match self.body {
            Body::Whole(text) => HttpBody::from(text),
            Body::Events(receipt, time) => HttpBody::from_stream(events(&receipt, time)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().append(HeaderName::from_static(name), value);
            }
        }
        response
    }
}
