//! The options of a layer. This module sets the options, checks them, and makes the layer's configuration.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode, request, response};
use tokio::sync::Semaphore;

use super::body::{Body, BoxError};
use super::config::{Config, Recording};
use super::fingerprint::RequestFingerprint;
use super::guard::Guard;
use super::long_operation::{boxed, is_path};
use idem_core::Store;
use idem_core::protocol::OnCrash;
use idem_runtime::problem::Documentation;
use idem_runtime::{Error, Operation};

/// The default scope of the records.
const SCOPE: &str = "http";

/// The default limit of handlers that run at the same time.
const MAX_RUNNING: usize = 1024;

/// How long a duplicate waits for the response by default. Most handlers end within that time. So if a
/// client's connection broke, the client usually gets the response when it sends the request again.
const WAIT: Duration = Duration::from_secs(5);

/// The default timeout of one operation of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The default timeout of a handler.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The options of an [`IdempotencyLayer`](super::IdempotencyLayer): see its `builder`.
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<St> {
    pub(super) config: Config<St>,
    max_running: usize,
    handler_timeout: Option<Duration>,
    fail_open: bool,
    /// Whether `tenant` or `shared_by_all_clients` was called.
    is_tenancy_set: bool,
    /// If the URI for `documentation` is invalid: the text of the error that `build` returns.
    fault: Option<&'static str>,
}

impl<St: Store> Builder<St> {
    pub(super) fn new(store: St) -> Self {
        let config = Config {
            store,
            operation: Operation::new(SCOPE).wait(WAIT).store_timeout(STORE_TIMEOUT),
            store_timeout: STORE_TIMEOUT,
            reruns: true,
            scope: Cow::Borrowed(SCOPE),
            guard: Arc::new(Guard::of_writes),
            tenant: None,
            fingerprint: RequestFingerprint::new(),
            forgotten: HashSet::new(),
            recording: None,
            denied_headers: HashSet::new(),
            max_request_bytes: 2 * 1024 * 1024,
            max_response_bytes: 1024 * 1024,
            documentation: Documentation::default(),
            places: Arc::new(Semaphore::new(MAX_RUNNING)),
            transaction: None,
            operations: None,
            large_result: None,
        };
        Self {
            config,
            max_running: MAX_RUNNING,
            handler_timeout: Some(HANDLER_TIMEOUT),
            fail_open: false,
            is_tenancy_set: false,
            fault: None,
        }
    }

    fn operation(mut self, set: impl FnOnce(Operation) -> Operation) -> Self {
        self.config.operation = set(self.config.operation);
        self
    }

    /// The scope of all records of this layer: `http` unless set. If two APIs share a store, give each its
    /// own scope.
    pub fn scope(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        let scope = name.into();
        self.config.scope = scope.clone();
        self.operation(|operation| operation.scope(scope))
    }

    /// Sets the function that decides by a request's head whether the request is guarded, and whether it
    /// needs a key. Unless set, a POST or PATCH is guarded and needs a key, and every other request goes to
    /// its handler unchanged.
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
    /// If the function panics, the layer answers the request with 500 `misconfigured` and runs no handler.
    pub fn guard(mut self, guard: impl Fn(&request::Parts) -> Guard + Send + Sync + 'static) -> Self {
        self.config.guard = Arc::new(guard);
        self
    }

    /// Sets the function that returns the tenant of a request. The same key from two tenants identifies two
    /// records. If the function returns `None` or an empty text, the layer refuses the request.
    ///
    /// Take the tenant from authenticated data, such as an extension of the request that an authentication
    /// layer outside this one has set. Never take it from unauthenticated data: a client that can name
    /// another tenant can read that tenant's responses.
    ///
    /// If the function panics, the layer answers the request with 500 `misconfigured` and runs no handler.
    pub fn tenant(
        mut self,
        tenant: impl Fn(&request::Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.config.tenant = Some(Arc::new(tenant));
        self.is_tenancy_set = true;
        self
    }

    /// Lets all clients share one set of keys. A client that sends another client's key and request gets that
    /// client's response. A client that sends another client's key with a different request gets 422
    /// `key-reused`. Use this method for an API with one client, or for an API whose responses all clients
    /// may see.
    pub fn shared_by_all_clients(mut self) -> Self {
        self.config.tenant = None;
        self.is_tenancy_set = true;
        self
    }

    /// Which parts of a request must be the same under one key; all parts unless set.
    pub fn fingerprint(mut self, fingerprint: RequestFingerprint) -> Self {
        self.config.fingerprint = fingerprint;
        self
    }

    /// How long a response is kept after it was recorded; 24 hours unless set. At most 100 years.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.operation(|operation| operation.ttl(ttl))
    }

    /// If a process dies, its keys stay claimed for at most this time; 30 seconds unless set. The layer
    /// renews the lease while the handler runs.
    pub fn lease(self, lease: Duration) -> Self {
        self.operation(|operation| operation.lease(lease))
    }

    /// How long a request whose key is in flight waits for the response; 5 seconds unless set. After that
    /// time the layer answers 409 `in-flight`. With zero, it answers at once.
    pub fn wait(self, wait: Duration) -> Self {
        self.operation(|operation| operation.wait(wait))
    }

    /// What happens after a crash. A handler has crashed if it began but did not answer, because its process
    /// died, it panicked or it took too long. It also counts as a crash if a layer inside this one ended the
    /// handler (408, 504), if the handler's service failed, or if the response broke off. With
    /// [`OnCrash::Rerun`], the default, the next request with the key runs the handler again, and
    /// [`recovered`](idem_runtime::Context::recovered) returns `true` in that run. With [`OnCrash::InDoubt`],
    /// nothing runs again before an operator decides. Then every 5xx counts as a crash, too, unless
    /// [`recording`](Self::recording), [`forget_status`](Self::forget_status) or the handler's own
    /// [`Recording`] decides otherwise.
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.config.reruns = on_crash == OnCrash::Rerun;
        self.operation(|operation| operation.on_crash(on_crash))
    }

    /// How many handlers may run at the same time, including those whose clients have gone away; 1,024 unless
    /// set. At the limit, the layer answers every further guarded request with 503 `too-many-running`, and
    /// does not change the state of the request's key.
    pub const fn max_running(mut self, handlers: usize) -> Self {
        self.max_running = handlers;
        self
    }

    /// How long a handler may run, including the time to read its response; 10 minutes unless set, `None` for
    /// no limit. After that time the layer drops the handler and answers 500 `handler-failed`: see
    /// [`on_crash`](Self::on_crash).
    pub fn handler_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.handler_timeout = timeout.into();
        self
    }

    /// Runs the handler unprotected when the store is down, instead of answering 503.
    pub fn fail_open(mut self) -> Self {
        self.fail_open = true;
        self.operation(Operation::fail_open)
    }

    /// How long one operation of the store may take, retries included; 5 seconds unless set.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.config.store_timeout = timeout;
        self.operation(|operation| operation.store_timeout(timeout))
    }

    /// Deletes the record and its fingerprint after a response with this status: see [`Recording::Forget`].
    /// With 422, for example, a client can correct its request and send it under the same key.
    pub fn forget_status(mut self, status: StatusCode) -> Self {
        self.config.forgotten.insert(status);
        self
    }

    /// Sets the function that decides by a response's head what to do with the response. A handler's own
    /// [`Recording`] takes precedence. If the function returns `None`, or is not set, the status decides.
    /// Responses with 401, 403, 407, 408, 425, 429, 5xx or a status of [`forget_status`](Self::forget_status)
    /// are not kept. Failures of gRPC (`grpc-status`) are not kept either. All other responses are kept,
    /// unless they stream or are too large.
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
    /// If the function panics, the layer answers the request with 500 `handler-failed`: see
    /// [`on_crash`](Self::on_crash).
    pub fn recording(
        mut self,
        recording: impl Fn(&response::Parts) -> Option<Recording> + Send + Sync + 'static,
    ) -> Self {
        self.config.recording = Some(Arc::new(recording));
        self
    }

    /// Leaves these headers out of every kept response, in addition to the headers below.
    ///
    /// The layer never keeps hop-by-hop headers, headers that `Connection` names, `Set-Cookie`,
    /// `Set-Cookie2`, `Authentication-Info`, `Proxy-Authentication-Info`, and headers about one moment or one
    /// request: `Date`, `Age`, `Server-Timing`, `RateLimit*`, `X-RateLimit*`, `X-Rate-Limit*`, `Request-Id`,
    /// `X-Request-Id`, `X-Correlation-Id`, `X-Amzn-RequestId`, `X-Amzn-Trace-Id`, `Traceparent` and
    /// `Traceresponse`.
    pub fn deny_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.config.denied_headers.extend(names);
        self
    }

    /// The largest body of a request, in bytes; 2 MiB unless set. The layer holds the body in memory. It
    /// refuses a larger body with 413.
    pub const fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.max_request_bytes = bytes;
        self
    }

    /// The largest body of a response that is kept, in bytes; 1 MiB unless set. A larger body goes to the
    /// client and is not kept, so a retry gets the problem `response-not-stored`. In a transaction, the
    /// client gets 500 `handler-failed` instead of the larger body.
    pub const fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.config.max_response_bytes = bytes;
        self
    }

    /// Lets each handler answer 202 and continue: see [`LongOperation`](super::LongOperation), which the
    /// handler gets as an extractor. The location of an operation is this path or URI, a slash and the
    /// operation's name. Serve the locations with [`operations`](super::IdempotencyLayer::operations).
    ///
    /// With this option, the keys of this layer's records have another form: the tenant, `@` and the first 32
    /// digits of the operation's name. `wait` does not apply. Neither [`fail_open`](Self::fail_open) nor a
    /// transaction can be combined with long operations.
    pub fn long_operations(mut self, path: impl Into<String>) -> Self {
        self.config.operations = Some(path.into());
        self
    }

    /// Sets the function that keeps the response of a long operation elsewhere if the response streams or is
    /// too large to record. The function gets the whole response, and returns the response to record, such as
    /// a 303 with the `Location` of an object in an object store. If the function returns a 5xx, the
    /// operation counts as failed. Unless set, the record only shows that there was a response, and the
    /// operation's location answers 409 `response-not-stored`.
    ///
    /// The function runs as part of the handler: within `handler_timeout` and with the
    /// [`context`](idem_runtime::context) of its call. If the handler runs again after a crash, this function
    /// runs again, too. So give the object the same name each time, such as a
    /// [`downstream_key`](idem_runtime::Context::downstream_key).
    pub fn large_results<F, W, R>(mut self, keep: F) -> Self
    where
        F: Fn(response::Parts, Body) -> W + Send + Sync + 'static,
        W: Future<Output = Response<R>> + Send + 'static,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.config.large_result = Some(Arc::new(move |head, body| boxed(keep(head, body))));
        self
    }

    /// The URI of the page that documents the header for the clients of the API: how to use it, how long keys
    /// are kept, and what the problems mean. Every problem links to this URI. The problem's `type` is this
    /// URI, followed by `#` (unless the URI ends with `#` or `/`) and the problem's
    /// [name](super::Problem::name). Unless set, the link leads to the IETF draft, and the `type` leads to
    /// the documentation of this module.
    pub fn documentation(mut self, uri: impl AsRef<str>) -> Self {
        let documentation = Documentation::at(uri.as_ref());
        self.fault = documentation.is_none().then_some("the documentation must be a URI");
        self.config.documentation = documentation.unwrap_or_default();
        self
    }

    /// The configuration, if every option has a valid value and no two options contradict each other.
    pub(super) fn configuration(self) -> Result<Arc<Config<St>>, Error> {
        let Config { transaction, operations, fingerprint, reruns, .. } = &self.config;
        let in_transaction = transaction.is_some();
        let faults = [
            self.fault,
            (self.max_running == 0).then_some("at least one handler must be allowed to run"),
            fingerprint.fault(),
            operations.as_deref().is_some_and(|path| !is_path(path)).then_some(
                "the path of `long_operations` must be a path or a URI without a query",
            ),
            (!self.is_tenancy_set).then_some(
                "say whose keys they are: `.tenant(..)`, from what was authenticated, keeps clients apart; \
                 `.shared_by_all_clients()` does not",
            ),
            (in_transaction && (self.fail_open || !reruns)).then_some(
                "a transaction that is rolled back leaves no trace, so neither `fail_open` nor \
                 `on_crash(OnCrash::InDoubt)` can go with it",
            ),
            (operations.is_some() && (self.fail_open || in_transaction)).then_some(
                "a long operation has a record that its clients look up while it runs, so neither `fail_open` nor a \
                 transaction can go with `long_operations`",
            ),
        ];
        if let Some(fault) = faults.into_iter().flatten().next() {
            return Err(Error::configuration("idem::http", fault));
        }
        let config = self.finish();
        config.operation.validate()?;
        Ok(config)
    }

    pub(super) fn finish(self) -> Arc<Config<St>> {
        let Self { mut config, max_running, handler_timeout, .. } = self;
        if let Some(timeout) = handler_timeout {
            config.operation = config.operation.timeout(timeout);
        }
        config.places = Arc::new(Semaphore::new(max_running.min(Semaphore::MAX_PERMITS)));
        Arc::new(config)
    }
}

impl<St> fmt::Debug for Builder<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("operation", &self.config.operation).finish_non_exhaustive()
    }
}
