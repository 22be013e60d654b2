//! The layer and its service: they pass a call to the HTTP layer, get the decision, and decide by the method's code
//! what to record.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use idem_http::{Begun, Body, BoxError, IdempotencyLayer, Problem, Recording};
use idem_runtime::Store;
use tonic::Code;
use tonic::server::NamedService;
use tower_layer::Layer;
use tower_service::Service;

use crate::messages::{Answered, Unary, read};
use crate::status;

/// The beginning of the content types of gRPC-Web.
const GRPC_WEB: &[u8] = b"application/grpc-web";

/// Guards unary calls with the metadata `idempotency-key`: see the [crate](crate).
///
/// Cheap to clone; clones share everything.
///
/// A method runs in a separate task, and continues when its client has gone away. Use [`IdempotencyLayer::running`] to
/// wait for it at a shutdown.
pub struct GrpcIdempotencyLayer<St> {
    layer: IdempotencyLayer<St>,
    codes: Arc<[(Code, Recording)]>,
}

impl<St> GrpcIdempotencyLayer<St> {
    /// Guards with the settings of this layer. Its settings for HTTP statuses have no effect, because every call has
    /// the status 200.
    #[must_use]
    pub fn new(layer: IdempotencyLayer<St>) -> Self {
        Self { layer, codes: Arc::new([]) }
    }

    /// Keeps answers with this code.
    ///
    /// Unless set, `OK`, `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION` and `OUT_OF_RANGE` are.
    /// `UNKNOWN`, `INTERNAL`, `DATA_LOSS`, `CANCELLED` and `DEADLINE_EXCEEDED` count as crashes of the method: see
    /// [`Builder::on_crash`](idem_http::Builder::on_crash). All others release the key.
    #[must_use]
    pub fn keep_code(self, code: Code) -> Self {
        self.with(code, Recording::Keep)
    }

    /// Releases the key after answers with this code: the next call with the key runs.
    #[must_use]
    pub fn release_code(self, code: Code) -> Self {
        self.with(code, Recording::Release)
    }

    fn with(mut self, code: Code, recording: Recording) -> Self {
        let others = self.codes.iter().copied().filter(|(other, _)| *other != code);
        self.codes = others.chain([(code, recording)]).collect();
        self
    }

    fn recording(&self, code: Code) -> Recording {
        let setting = self.codes.iter().find(|(other, _)| *other == code);
        setting.map_or_else(|| status::recording(code), |(_, recording)| *recording)
    }
}

impl<St> Clone for GrpcIdempotencyLayer<St> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), codes: self.codes.clone() }
    }
}

impl<St> fmt::Debug for GrpcIdempotencyLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcIdempotencyLayer").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl<S, St> Layer<S> for GrpcIdempotencyLayer<St> {
    type Service = GrpcIdempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcIdempotency { inner, settings: self.clone() }
    }
}

/// A service that is guarded by a [`GrpcIdempotencyLayer`].
pub struct GrpcIdempotency<S, St> {
    inner: S,
    settings: GrpcIdempotencyLayer<St>,
}

impl<S: NamedService, St> NamedService for GrpcIdempotency<S, St> {
    const NAME: &'static str = S::NAME;
}

impl<S: Clone, St> Clone for GrpcIdempotency<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

impl<S, St> fmt::Debug for GrpcIdempotency<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcIdempotency").field("settings", &self.settings).finish_non_exhaustive()
    }
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
        // Takes the service that is ready, and leaves a clone in its place, which need not be ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(guarded(self.settings.clone(), inner, request))
    }
}

/// Whether this is a call that a layer inside this one translates from gRPC-Web. Its messages are not those of gRPC.
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

/// The method's answer, with what to record for it.
async fn recordable<St>(
    settings: &GrpcIdempotencyLayer<St>,
    response: Response<tonic::body::Body>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    match read(body).await {
        Answered::Unary(data, trailers) => {
            let code = status::code(&parts.headers, trailers.as_ref());
            parts.extensions.insert(settings.recording(code));
            Response::from_parts(parts, whole(data, trailers))
        }
        Answered::Stream => {
            let refused =
                status::streams("this one streams its answer. It was processed, and is not processed again");
            recorded_as(refused, Recording::Keep)
        }
        Answered::Broken => {
            recorded_as(tonic::Status::internal("the answer broke off").into_http(), Recording::Crash)
        }
    }
}

fn recorded_as(mut response: Response<tonic::body::Body>, recording: Recording) -> Response<Body> {
    response.extensions_mut().insert(recording);
    response.map(Body::new)
}

fn whole(data: Bytes, trailers: Option<http::HeaderMap>) -> Body {
    let data = (!data.is_empty()).then(|| Frame::data(data));
    let frames = data.into_iter().chain(trailers.map(Frame::trailers)).map(Ok::<_, BoxError>);
    Body::new(StreamBody::new(stream::iter(frames.collect::<Vec<_>>())))
}
