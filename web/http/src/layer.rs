//! The layer: its constructors, and the methods that a service calls.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::request::Parts;

use super::body::{Body, BoxError};
use super::builder::Builder;
use super::config::Config;
use super::exchange::{Begun, begin};
use super::guard::Guard;
use super::key::HEADER;
use super::report;
use super::transaction::Transactional;
use idem_core::Store;
use idem_core::transaction::{RecordsIn, TransactionPool};
use idem_runtime::Error;

/// Guards a service by the `Idempotency-Key` header, as draft-ietf-httpapi-idempotency-key-header-07
/// defines it: a repeated request under the same key gets the first response, and is not processed again.
///
/// Cheap to clone; clones share everything. A handler that is not in a transaction continues when its client
/// has gone away. So after a server has closed its connections, it must call
/// [`idem::drain`](idem_runtime::drain), which waits for the handlers and their records.
///
/// Use it like any tower layer, for example with axum's `Router::layer`:
///
/// ```
/// use idem::MemoryStore;
/// use idem::http::IdempotencyLayer;
/// use tower_layer::Layer;
///
/// fn guarded<S>(api: S) -> impl Sized {
/// // An API whose clients need not be separated. For other APIs see `Builder::tenant`.
///     IdempotencyLayer::shared_by_all_clients(MemoryStore::new()).layer(api)
/// }
/// # let _ = guarded(());
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer<St> {
    pub(super) config: Arc<Config<St>>,
}

impl<St: Store> IdempotencyLayer<St> {
    /// A layer for an API whose clients need not be separated, with the defaults of all other options: see
    /// [`Builder::shared_by_all_clients`].
    #[must_use]
    pub fn shared_by_all_clients(store: St) -> Self {
        Self { config: Builder::new(store).finish() }
    }

    /// The options of a layer. One of [`tenant`](Builder::tenant) and
    /// [`shared_by_all_clients`](Builder::shared_by_all_clients) is required.
    ///
    /// ```
    /// use std::time::Duration;
    /// use idem::MemoryStore;
    /// use idem::http::IdempotencyLayer;
    ///
    /// #[derive(Clone)]
    /// struct Account { id: String }
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .scope("payments-api")
    /// // Set by the authentication layer, outside this one.
    ///     .tenant(|request| Some(request.extensions.get::<Account>()?.id.clone()))
    ///     .wait(Duration::from_secs(10))
    ///     .documentation("https://api.example.com/docs/idempotency")
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    pub fn builder(store: St) -> Builder<St> {
        Builder::new(store)
    }

    /// The options of a layer that runs each handler in a transaction of `pool`, a pool of the store's
    /// database. One commit contains the claim, what the handler writes through [`Tx`](super::Tx), and the
    /// record of its response. The client gets a response only after the commit. The page `docs/http.md` has
    /// an example.
    ///
    /// | how the handler ends | what happens |
    /// |---|---|
    /// | a kept response below 400 | one commit of the handler's writes and the response |
    /// | a kept response of 400 or above, or a kept gRPC failure | only the response is recorded |
    /// | a response that is not kept, such as a 5xx | a rollback: the key is free at once |
    /// | a panic, a broken body, `handler_timeout`, a client that goes away, a killed process | a rollback |
    /// | a response that streams or is too large | a rollback, and 500 `handler-failed` |
    ///
    /// A duplicate in the process of the first request waits without a connection of the pool. A duplicate in
    /// another process takes a connection of the pool each time it tries to claim the key. The handler cannot
    /// use steps. Neither [`fail_open`](Builder::fail_open) nor
    /// [`OnCrash::InDoubt`](idem_runtime::OnCrash::InDoubt) can be combined with a transaction.
    pub fn in_transaction<P>(store: St, pool: P) -> Builder<Transactional<St, P>>
    where
        P: TransactionPool<St>,
        St: RecordsIn<P::Connection>,
    {
        let store = Transactional::new(store, pool);
        let transactions = store.clone();
        let mut builder = Builder::new(store);
        builder.config.transaction =
            Some(Arc::new(move |call, extensions| transactions.attach(call, extensions)));
        builder
    }
}

impl<St: Store> Builder<St> {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] or [`Error::InvalidKey`] if an option has a value that cannot work, or if two
    /// options contradict each other.
    pub fn build(self) -> Result<IdempotencyLayer<St>, Error> {
        Ok(IdempotencyLayer { config: self.configuration()? })
    }
}

impl<St: Clone> IdempotencyLayer<St> {
    /// The largest body of a request that the layer accepts, in bytes: see
    /// [`Builder::max_request_bytes`](super::Builder::max_request_bytes).
    #[must_use]
    pub fn max_request_bytes(&self) -> usize {
        self.config.max_request_bytes
    }
}

/// For authors of middleware for web frameworks without tower. Call [`guards`](Self::guards) with the head of
/// each request. If the request is guarded, call [`begin`](Self::begin) with the whole request. If `begin`
/// returns a [`Run`](super::Run), run the handler with it. The layer records the response. The
/// [service](super::Idempotency) makes the same calls.
impl<St: Store> IdempotencyLayer<St> {
    /// Whether a request with this head is guarded. If it is not, send the request to its handler as if there
    /// were no layer.
    #[must_use]
    pub fn guards(&self, head: &Parts) -> bool {
        match self.config.guard_of(head) {
            Ok(Guard::Unguarded) => false,
            Ok(Guard::Optional) if !head.headers.contains_key(HEADER) => {
                report::outcome(&self.config.scope, "unguarded");
                false
            }
            // If the function that `Builder::guard` set panics, `begin` answers the request with a problem.
            _ => true,
        }
    }

    /// Reads a guarded request whole, claims its key, and returns what to do: send a response, or run the
    /// handler. Call [`guards`](Self::guards) first, because `begin` guards every request, whatever its
    /// method.
    ///
    /// The layer reads the tenant and the key from the request's head, and computes the fingerprint from head
    /// and body. The functions in the layer's settings, such as the function of
    /// [`Builder::tenant`](super::Builder::tenant), may read the request's extensions. So set these
    /// extensions before you call `begin`. If the future is dropped, nothing stays claimed.
    ///
    /// ```
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
    /// /// The work of a middleware.
    /// async fn answer(layer: &IdempotencyLayer<MemoryStore>, request: Request<Body>) -> Response<Body> {
    ///     let (head, body) = request.into_parts();
    ///     let is_guarded = layer.guards(&head);
    ///     let request = Request::from_parts(head, body);
    ///     if !is_guarded {
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
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        begin(&self.config, request.map(Body::new)).await
    }
}

impl<St> fmt::Debug for IdempotencyLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("operation", &self.config.operation).finish_non_exhaustive()
    }
}
