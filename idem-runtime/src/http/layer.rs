//! The layer: what makes the service.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, Request};
use tower_layer::Layer;

use super::body::BoxError;
use super::config::Config;
use super::exchange::{Begun, begin};
use super::running::Running;
use super::service::Idempotency;
use idem_core::Store;

/// Guards a service by the `Idempotency-Key` header, as draft-ietf-httpapi-idempotency-key-header-07
/// defines it: a repeated request under the same key gets the first response, and is not processed again.
///
/// Cheap to clone; clones share everything. It goes where any tower layer goes, such as
/// `Router::layer` of axum:
///
/// ```
/// # use idem_runtime as idem;
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
/// use tower_layer::Layer;
///
/// fn guarded<S>(api: S) -> impl Sized {
///     // An API whose clients need not be kept apart. For others see `Builder::tenant`.
///     IdempotencyLayer::shared_by_all_clients(MemoryStore::new()).layer(api)
/// }
/// # let _ = guarded(());
/// ```
pub struct IdempotencyLayer<St> {
    config: Arc<Config<St>>,
}

impl<St> IdempotencyLayer<St> {
    pub(super) fn of(config: Config<St>) -> Self {
        Self { config: Arc::new(config) }
    }

    /// The handlers that run under a key, for a server that ends: they go on without their clients.
    #[must_use]
    pub fn running(&self) -> Running {
        self.config.running.clone()
    }
}

/// For web frameworks without tower, and authors of middleware for them: a request's head and bytes in, a decision out,
/// the handler run and its response recorded. What the [service](super::Idempotency) does is these calls.
impl<St: Store> IdempotencyLayer<St> {
    /// Whether a request with this head is guarded. Another one goes to its handler as if there were no layer.
    #[must_use]
    pub fn guards(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.config.guards(method, headers)
    }

    /// Reads a guarded request whole, claims its key, and says what is to be done: send an answer, or run the handler.
    /// Ask [`guards`](Self::guards) first: this one guards every request, whatever its method.
    ///
    /// A request's tenant, its fingerprint and its key are read from its `http::request::Parts`: put there as an extension what
    /// [`Builder::tenant`](super::Builder::tenant) looks for. Dropping the future leaves nothing behind.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use idem::MemoryStore;
    /// use idem::http::{Begun, Body, IdempotencyLayer};
    ///
    /// async fn pay(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    ///     Ok(Response::new(Body::from(Bytes::from("paid"))))
    /// }
    ///
    /// /// What a middleware does.
    /// async fn answer(layer: &IdempotencyLayer<MemoryStore>, request: Request<Body>) -> Response<Body> {
    ///     if !layer.guards(request.method(), request.headers()) {
    ///         return pay(request).await.unwrap();
    ///     }
    ///     match layer.begin(request).await {
    ///         Begun::Answered(response) => response,
    ///         Begun::Run(run, request) => run.spawn(pay(request)).await.unwrap(),
    ///     }
    /// }
    ///
    /// let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    /// let request = || {
    ///     let request = Request::post("/pay").header("idempotency-key", "8e03978e");
    ///     request.body(Body::from(Bytes::from("1999"))).unwrap()
    /// };
    /// assert!(!answer(&layer, request()).await.headers().contains_key("idempotency-replayed"));
    /// assert!(answer(&layer, request()).await.headers().contains_key("idempotency-replayed"));
    /// # }
    /// ```
    pub async fn begin<B>(&self, request: Request<B>) -> Begun<St>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        begin(&self.config, request).await
    }
}

impl<St> Clone for IdempotencyLayer<St> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone() }
    }
}

impl<S, St> Layer<S> for IdempotencyLayer<St> {
    type Service = Idempotency<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, self.config.clone())
    }
}

impl<St> fmt::Debug for IdempotencyLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.config.header)
            .field("operation", &self.config.operation)
            .finish_non_exhaustive()
    }
}
