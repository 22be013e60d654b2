//! The options of a layer.

mod build;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Response, StatusCode, request, response};

use super::body::{Body, BoxError};
use super::config::{Decide, Guarding, Recording, Tenant};
use super::fingerprint::RequestFingerprint;
use super::guard::Guard;
use super::key::HEADER;
use super::layer::IdempotencyLayer;
use super::long_operation::{LargeResult, boxed};
use super::transaction::{Attach, Transactional};
use idem_core::Store;
use idem_core::protocol::OnCrash;
use idem_core::transaction::{RecordsIn, TransactionPool};
use idem_runtime::Operation;

/// The scope of the records, unless one is set.
const SCOPE: &str = "http";

/// How many handlers may run at a time, unless it is set.
const MAX_RUNNING: usize = 1024;

/// How long a duplicate waits for the response, unless it is set. Most handlers are done by then, so that a client whose
/// connection broke gets its response by its next request.
const WAIT: Duration = Duration::from_secs(5);

/// How long one operation of the store may take, unless it is set.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a handler may run, unless it is set.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The options of an [`IdempotencyLayer`]: see [`IdempotencyLayer::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<St> {
    store: St,
    operation: Operation,
    scope: Cow<'static, str>,
    on_crash: OnCrash,
    handler_timeout: Option<Duration>,
    guard: Guarding,
    header: HeaderName,
    tenant: Option<Tenant>,
    shared: bool,
    fingerprint: RequestFingerprint,
    forgotten: HashSet<StatusCode>,
    recording: Option<Decide>,
    denied_headers: HashSet<HeaderName>,
    max_request_bytes: usize,
    max_response_bytes: usize,
    documentation: Option<String>,
    max_running: usize,
    fail_open: bool,
    transaction: Option<Attach>,
    store_timeout: Duration,
    operations: Option<String>,
    large_result: Option<LargeResult>,
}

impl<St: Store> IdempotencyLayer<St> {
    /// A layer for an API whose clients need not be separated, with the defaults of all other options: see
    /// [`Builder::shared_by_all_clients`].
    #[must_use]
    pub fn shared_by_all_clients(store: St) -> Self {
        Self::of(Builder::new(store).shared_by_all_clients().defaults())
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

    /// The options of a layer that runs each handler in a transaction of `pool`, a pool of the store's database: the
    /// claim, what the handler writes through [`Tx`](super::Tx), and the record of its response are one commit. The
    /// client gets a response only after the commit. The page `docs/http.md` has an example.
    ///
    /// | the handler's end | becomes |
    /// |---|---|
    /// | a response below 400 that is kept | one commit of its writes and its response |
    /// | a response from 400 on that is kept | its writes are undone, and its response is recorded |
    /// | a response that is not kept, such as a 5xx | a rollback: the key is free at once |
    /// | a panic, a broken body, `handler_timeout`, a client that goes away, a killed process | the same |
    /// | a response that streams or is too large | a rollback, and 500 `handler-failed` |
    ///
    /// A duplicate waits without a connection of the pool; in another process than the first request it takes one to look
    /// at the key. A handler has no steps. Neither [`fail_open`](Builder::fail_open) nor [`OnCrash::InDoubt`] goes with it.
    pub fn in_transaction<P>(store: St, pool: P) -> Builder<Transactional<St, P>>
    where
        P: TransactionPool<St>,
        St: RecordsIn<P::Connection>,
    {
        let store = Transactional::new(store, pool);
        let transactions = store.clone();
        let attach: Attach = Arc::new(move |call, extensions| transactions.attach(call, extensions));
        Builder { transaction: Some(attach), ..Builder::new(store) }
    }
}

impl<St: Store> Builder<St> {
    pub(super) fn new(store: St) -> Self {
        Self {
            store,
            operation: Operation::new(SCOPE).wait(WAIT),
            scope: Cow::Borrowed(SCOPE),
            on_crash: OnCrash::Rerun,
            handler_timeout: Some(HANDLER_TIMEOUT),
            guard: Arc::new(Guard::of_writes),
            header: HEADER,
            tenant: None,
            shared: false,
            fingerprint: RequestFingerprint::new(),
            forgotten: HashSet::new(),
            recording: None,
            denied_headers: HashSet::new(),
            max_request_bytes: 2 * 1024 * 1024,
            max_response_bytes: 1024 * 1024,
            documentation: None,
            max_running: MAX_RUNNING,
            fail_open: false,
            transaction: None,
            store_timeout: STORE_TIMEOUT,
            operations: None,
            large_result: None,
        }
    }

    /// The scope of all records of this layer: `http` unless set. Set one if two APIs share a store.
    pub fn scope(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.scope = name.into();
        self
    }

    /// Sets the function that says by its head whether a request is guarded, and whether it needs a key. Unless set, a
    /// POST or PATCH is guarded and needs one, and every other request passes through unchanged.
    ///
    /// ```
    /// use http::Method;
    /// use idem::MemoryStore;
    /// use idem::http::{Guard, IdempotencyLayer};
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .shared_by_all_clients()
    ///     .guard(|head| match head.method {
    ///         Method::POST if head.uri.path().starts_with("/payments") => Guard::Required,
    ///         Method::POST | Method::PATCH => Guard::Optional,
    ///         _ => Guard::Unguarded,
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    ///
    /// If the function panics, its request is answered with 500 `misconfigured`, and nothing is processed.
    pub fn guard(mut self, guard: impl Fn(&request::Parts) -> Guard + Send + Sync + 'static) -> Self {
        self.guard = Arc::new(guard);
        self
    }

    /// The header that carries the key; `Idempotency-Key` unless set.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// Sets the function that returns the tenant of a request. The same key of two tenants names two records. A request
    /// is refused if the function returns `None` or an empty text.
    ///
    /// Take the tenant from authenticated data, such as an extension of the request that an authentication layer
    /// outside this one has set. Never take it from what a client writes: a client that can name another tenant can
    /// read that tenant's responses.
    ///
    /// If the function panics, its request is answered with 500 `misconfigured`, and nothing is processed.
    pub fn tenant(
        mut self,
        tenant: impl Fn(&request::Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Some(Arc::new(tenant));
        self
    }

    /// Lets all clients share one set of keys: a client that knows another client's key and request gets its response,
    /// and the first client that uses a key owns it. For an API with one client, or whose responses all clients may
    /// see.
    pub fn shared_by_all_clients(mut self) -> Self {
        self.tenant = None;
        self.shared = true;
        self
    }

    /// Which parts of a request must be the same under one key; all unless set.
    pub fn fingerprint(mut self, fingerprint: RequestFingerprint) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// How long a response is kept, from when it was recorded; 24 hours unless set. At most 100 years.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.operation = self.operation.ttl(ttl);
        self
    }

    /// How long the key of a process that died stays claimed; 30 seconds unless set. The lease is renewed while the
    /// handler runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.operation = self.operation.lease(lease);
        self
    }

    /// How long a request whose key is in flight waits for the response; 5 seconds unless set. After that it is answered
    /// with 409 `in-flight`, with zero at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.operation = self.operation.wait(wait);
        self
    }

    /// What happens after a handler that began and did not answer: its process died, it panicked or took too long, a
    /// layer inside this one ended it (408, 504), its service failed, or its response broke off. [`OnCrash::Rerun`]
    /// unless set: the next request with the key runs it, with [`recovered`](idem_runtime::Context::recovered). With
    /// [`OnCrash::InDoubt`], nothing runs again before an operator decides, and every 5xx counts as such an end, unless
    /// [`recording`](Self::recording) or the handler's own [`Recording`] says otherwise.
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = on_crash;
        self
    }

    /// How many handlers may run at a time, including those whose clients have gone away; 1,024 unless set. A further
    /// request is answered with 503 `too-many-running`, and its key is released.
    pub const fn max_running(mut self, handlers: usize) -> Self {
        self.max_running = handlers;
        self
    }

    /// How long a handler may run, including reading its response; 10 minutes unless set, `None` for no limit. After
    /// that time the handler is dropped and the request is answered with 500 `handler-failed`: see
    /// [`on_crash`](Self::on_crash).
    pub fn handler_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.handler_timeout = timeout.into();
        self
    }

    /// Runs the handler unprotected when the store is down, instead of answering 503.
    pub fn fail_open(mut self) -> Self {
        self.fail_open = true;
        self
    }

    /// How long one operation of the store may take, retries included; 5 seconds unless set.
    pub const fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Deletes the record after a response with this status, with its fingerprint: see [`Recording::Forget`]. So with
    /// 422, a client can correct its request and send it under the same key.
    pub fn forget_status(mut self, status: StatusCode) -> Self {
        self.forgotten.insert(status);
        self
    }

    /// Sets the function that says by its head what to do with a response. A handler's own [`Recording`] takes
    /// precedence. With `None`, and unless set, the status decides: all responses are kept except 401, 403, 407, 408,
    /// 425, 429, 5xx and failures of gRPC (`grpc-status`).
    ///
    /// ```
    /// use http::StatusCode;
    /// use idem::MemoryStore;
    /// use idem::http::{IdempotencyLayer, Recording};
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .shared_by_all_clients()
    ///     .recording(|response| match response.status {
    ///         StatusCode::NOT_FOUND => Some(Recording::Release),
    ///         StatusCode::BAD_GATEWAY => Some(Recording::Keep),
    ///         _ => None,
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    ///
    /// If the function panics, its request is answered with 500 `handler-failed`: see [`on_crash`](Self::on_crash).
    pub fn recording(
        mut self,
        recording: impl Fn(&response::Parts) -> Option<Recording> + Send + Sync + 'static,
    ) -> Self {
        self.recording = Some(Arc::new(recording));
        self
    }

    /// Does not keep these headers of a response, in addition to those that are never kept.
    ///
    /// Never kept are hop-by-hop headers and headers that `Connection` names; `Set-Cookie` and `Authentication-Info`; and
    /// what was true for one moment or one request: `Date`, `Age`, `Server-Timing`, `RateLimit*`, `X-RateLimit*`,
    /// `X-Rate-Limit*`, `Request-Id`, `X-Request-Id`, `X-Correlation-Id`, `X-Amzn-RequestId`, `X-Amzn-Trace-Id`,
    /// `Traceparent` and `Traceresponse`.
    pub fn deny_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.denied_headers.extend(names);
        self
    }

    /// The largest body of a request, in bytes; 2 MiB unless set. The body is held in memory. A larger one is refused
    /// with 413.
    pub const fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.max_request_bytes = bytes;
        self
    }

    /// The largest body of a response that is kept, in bytes; 1 MiB unless set. A larger one goes to the client and is
    /// not kept: a retry gets the problem `response-not-stored`.
    pub const fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// Lets each handler answer 202 and go on: see [`LongOperation`](super::LongOperation), which it gets as an
    /// extractor. The place of an operation is this path or URI, a slash and a name; serve it with
    /// [`operations`](IdempotencyLayer::operations).
    ///
    /// The record of each request of this layer has another key then: the tenant, `@` and the first 32 digits of
    /// that name. `wait` does not apply. Neither [`fail_open`](Self::fail_open) nor a transaction goes with it.
    pub fn long_operations(mut self, path: impl Into<String>) -> Self {
        self.operations = Some(path.into());
        self
    }

    /// Sets the function that keeps the response of a long operation elsewhere if it streams or is too large to
    /// record. The function gets the whole response, and returns the one that is recorded, such as a 303 with the
    /// `Location` of an object in an object store. A 5xx of its own lets the operation run again. Unless set, the
    /// record says only that there was a response: its place answers 409 `response-not-stored`.
    ///
    /// It is a part of the handler: within `handler_timeout`, with the [`context`](idem_runtime::context) of its
    /// call, and once more in a run after a crash. So give the object a name that it has each time, such as a
    /// [`downstream_key`](idem_runtime::Context::downstream_key).
    pub fn large_results<F, W, R>(mut self, keep: F) -> Self
    where
        F: Fn(response::Parts, Body) -> W + Send + Sync + 'static,
        W: Future<Output = Response<R>> + Send + 'static,
        R: http_body::Body + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.large_result = Some(Arc::new(move |head, body| boxed(keep(head, body))));
        self
    }

    /// The URI of the API's documentation of the header: how to use it, how long keys are kept and what the problems
    /// mean. Every problem links to it, and has its section as `type`: the URI, `#` unless the URI ends with `#` or `/`,
    /// and the problem's [name](super::Problem::name). The IETF draft and the documentation of this module unless set.
    pub fn documentation(mut self, uri: impl Into<String>) -> Self {
        self.documentation = Some(uri.into());
        self
    }
}

impl<St> fmt::Debug for Builder<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("operation", &self.operation).finish_non_exhaustive()
    }
}
