//! The layer and its service. They pass a call to the HTTP layer, get its decision, and decide by the code of
//! the method's answer what to record.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use idem_http::{Begun, Body, IdempotencyLayer, Problem, Recording};
use idem_runtime::Store;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_layer::Layer;
use tower_service::Service;

use crate::messages::{Messages, Unary};
use crate::status;

/// The beginning of the content types of gRPC-Web.
const GRPC_WEB: &[u8] = b"application/grpc-web";

/// Guards unary calls by the metadata `idempotency-key`: see the [crate](crate).
///
/// Cheap to clone; clones share everything.
///
/// A method runs in a separate task, and continues when its client has gone away, unless the
/// [`IdempotencyLayer`] runs handlers in transactions. At a shutdown, wait for the running methods with
/// [`idem::drain`](idem_runtime::drain).
#[derive(Clone, Debug)]
pub struct GrpcIdempotencyLayer<St> {
    layer: IdempotencyLayer<St>,
    recording: fn(Code) -> Option<Recording>,
}

impl<St> GrpcIdempotencyLayer<St> {
    /// Guards with the settings of `layer`. Settings that depend on HTTP statuses have no effect, because
    /// every answer has the HTTP status 200.
    #[must_use]
    pub const fn new(layer: IdempotencyLayer<St>) -> Self {
        Self { layer, recording: |_| None }
    }

    /// Sets the function that decides by an answer's code what to do with the answer.
    ///
    /// If the function returns `None`, or is not set, the answers `OK`, `INVALID_ARGUMENT`, `NOT_FOUND`,
    /// `ALREADY_EXISTS`, `FAILED_PRECONDITION` and `OUT_OF_RANGE` are kept. `UNKNOWN`, `INTERNAL`,
    /// `DATA_LOSS`, `CANCELLED` and `DEADLINE_EXCEEDED` count as crashes of the method: see
    /// [`Builder::on_crash`](idem_http::Builder::on_crash). All other codes release the key.
    ///
    /// ```
    /// use idem::MemoryStore;
    /// use idem::http::{IdempotencyLayer, Recording};
    /// use idem_tonic::GrpcIdempotencyLayer;
    /// use tonic::Code;
    ///
    /// let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    /// let layer = GrpcIdempotencyLayer::new(layer).recording(|code| match code {
    ///     Code::NotFound => Some(Recording::Release),
    ///     _ => None,
    /// });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn recording(self, recording: fn(Code) -> Option<Recording>) -> Self {
        Self { recording, ..self }
    }
}

impl<S, St: Clone> Layer<S> for GrpcIdempotencyLayer<St> {
    type Service = GrpcIdempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcIdempotency { inner, settings: self.clone() }
    }
}

/// A service that is guarded by a [`GrpcIdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct GrpcIdempotency<S, St> {
    inner: S,
    settings: GrpcIdempotencyLayer<St>,
}

impl<S: NamedService, St> NamedService for GrpcIdempotency<S, St> {
    const NAME: &'static str = S::NAME;
}

impl<S, St> Service<Request<tonic::body::Body>> for GrpcIdempotency<S, St>
where
    St: Store,
    S: Service<Request<tonic::body::Body>, Response = Response<tonic::body::Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let is_guarded = self.settings.layer.guards(&head);
        let is_grpc_web = is_grpc_web(&head);
        let request = Request::from_parts(head, body);
        if !is_guarded {
            return Box::pin(self.inner.call(request));
        }
        if is_grpc_web {
            return Box::pin(ready(Ok(status::streams(
                "this one is in the format of gRPC-Web; put its layer outside the one for keys. Nothing was processed",
            ))));
        }
        // `self.inner` is ready, but a clone may not be. So this call takes `self.inner`, and the clone
        // stays.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(guarded(self.settings.clone(), inner, request))
    }
}

/// Whether this call is in the format of gRPC-Web. This layer cannot read the messages of such a call, so the
/// layer that translates the call to gRPC must be outside this one.
fn is_grpc_web(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..GRPC_WEB.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC_WEB))
}

async fn guarded<S, St>(
    settings: GrpcIdempotencyLayer<St>,
    mut inner: S,
    request: Request<tonic::body::Body>,
) -> Result<Response<tonic::body::Body>, S::Error>
where
    St: Store,
    S: Service<Request<tonic::body::Body>, Response = Response<tonic::body::Body>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    let streams = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| Unary::new(body, streams.clone()));
    let layer = settings.layer.clone();
    let response = match layer.begin(request).await {
        Begun::Answered(_) if streams.load(Ordering::Relaxed) => {
            return Ok(status::streams("this one streams its request. Nothing was processed"));
        }
        Begun::Answered(response) => response,
        Begun::Run(run, request) => {
            let method = async move {
                let response = inner.call(request.map(tonic::body::Body::new)).await?;
                Ok(recordable(&settings, response).await)
            };
            run.spawn(method).await?
        }
    };
    Ok(match response.extensions().get::<Problem>() {
        Some(problem) => status::answer(*problem, response).await,
        None => response.map(tonic::body::Body::new),
    })
}

/// The method's answer, with the decision about what to record. tonic holds a whole message in memory before
/// it sends any of it, so reading the message needs no limit.
async fn recordable<St>(
    settings: &GrpcIdempotencyLayer<St>,
    response: Response<tonic::body::Body>,
) -> Response<Body> {
    let (mut parts, mut body) = response.into_parts();
    let (mut messages, mut data, mut trailers) = (Messages::default(), BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return recorded_as(Status::internal("the answer broke off").into_http(), Recording::Crash);
        };
        match frame.into_data() {
            Ok(more) => {
                messages.add(&more);
                if messages.begun > 1 {
                    let what = "this one streams its answer. It was processed, and is not processed again";
                    return recorded_as(status::streams(what), Recording::Keep);
                }
                data.extend_from_slice(&more);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let code = status::code(&parts.headers, trailers.as_ref());
    parts.extensions.insert((settings.recording)(code).unwrap_or_else(|| status::recording(code)));
    Response::from_parts(parts, Body::whole(data.freeze(), trailers))
}

fn recorded_as(mut response: Response<tonic::body::Body>, recording: Recording) -> Response<Body> {
    response.extensions_mut().insert(recording);
    response.map(Body::new)
}
