//! The options of a layer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, request, response};

use super::config::{Config, KeepIf, LONGEST_KEY, Tenant};
use super::fingerprint::RequestFingerprint;
use super::key::Syntax;
use super::layer::IdempotencyLayer;
use super::problem::{Answers, DRAFT, PROBLEMS, Problem};
use super::recording::HeaderRules;
use super::running::Running;
use crate::engine::{Operation, RetryAfter};
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::OnCrash;

/// The scope of the records, unless one is set.
const SCOPE: &str = "http";

/// How many handlers run at a time, unless it is set.
const MAX_RUNNING: usize = 1024;

/// How long a handler may run, unless it is set.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The options of an [`IdempotencyLayer`]: see [`IdempotencyLayer::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<St> {
    store: St,
    operation: Operation,
    scope: Cow<'static, str>,
    methods: Vec<Method>,
    header: HeaderName,
    required: bool,
    syntax: Syntax,
    max_key_bytes: usize,
    tenant: Option<Tenant>,
    shared: bool,
    digest_keys: bool,
    fingerprint: RequestFingerprint,
    statuses: HashMap<StatusCode, bool>,
    keep_if: Option<KeepIf>,
    headers: HeaderRules,
    max_request_bytes: usize,
    max_response_bytes: usize,
    marker: HeaderName,
    problem_base: String,
    problem_types: HashMap<Problem, String>,
    documentation: Option<String>,
    max_running: usize,
    handler_timeout: Option<Duration>,
}

impl<St: Store> IdempotencyLayer<St> {
    /// The layer of an API whose clients need not be kept apart, with the defaults of all other options: see
    /// [`Builder::shared_by_all_clients`].
    #[must_use]
    pub fn shared_by_all_clients(store: St) -> Self {
        Self::of(Builder::new(store).shared_by_all_clients().defaults())
    }

    /// The options of a layer. One of [`tenant`](Builder::tenant) and
    /// [`shared_by_all_clients`](Builder::shared_by_all_clients) is required.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// use std::time::Duration;
    /// use idem::MemoryStore;
    /// use idem::http::IdempotencyLayer;
    ///
    /// #[derive(Clone)]
    /// struct Account { id: String }
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .scope("payments-api")
    ///     // What the authentication layer, outside this one, has found out.
    ///     .tenant(|request| Some(request.extensions.get::<Account>()?.id.clone()))
    ///     .wait(Duration::from_secs(5))
    ///     .documentation("https://api.example.com/docs/idempotency")
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), idem::Error>(())
    /// ```
    pub fn builder(store: St) -> Builder<St> {
        Builder::new(store)
    }
}

impl<St: Store> Builder<St> {
    pub(super) fn new(store: St) -> Self {
        Self {
            store,
            operation: Operation::new(SCOPE)
                .store_timeout(Duration::from_secs(5))
                // The limit of this layer is that of the body.
                .max_result_bytes(usize::MAX),
            scope: Cow::Borrowed(SCOPE),
            methods: vec![Method::POST, Method::PATCH],
            header: HeaderName::from_static("idempotency-key"),
            required: true,
            syntax: Syntax::Lenient,
            max_key_bytes: 255,
            tenant: None,
            shared: false,
            digest_keys: false,
            fingerprint: RequestFingerprint::new(),
            statuses: HashMap::new(),
            keep_if: None,
            headers: HeaderRules::default(),
            max_request_bytes: 2 * 1024 * 1024,
            max_response_bytes: 1024 * 1024,
            marker: HeaderName::from_static("idempotency-replayed"),
            problem_base: PROBLEMS.to_owned(),
            problem_types: HashMap::new(),
            documentation: None,
            max_running: MAX_RUNNING,
            handler_timeout: Some(HANDLER_TIMEOUT),
        }
    }

    /// The scope that all records of this layer are under: `http` unless set. Set one where two APIs
    /// share a store.
    pub fn scope(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.scope = name.into();
        self.operation = self.operation.scoped(self.scope.clone());
        self
    }

    /// The methods that are guarded; POST and PATCH unless set. Requests of any other pass through
    /// untouched.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// The header that carries the key; `Idempotency-Key` unless set.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// A request without a key passes through unguarded, instead of being refused.
    pub const fn optional_key(mut self) -> Self {
        self.required = false;
        self
    }

    /// Takes a key only as the draft writes it, in double quotes. Unless this is set, `"abc"` and `abc`
    /// are the same key.
    pub const fn strict_keys(mut self) -> Self {
        self.syntax = Syntax::Strict;
        self
    }

    /// The longest key, in bytes without its quotes and escapes; 255 unless set, at most 952.
    pub const fn max_key_bytes(mut self, bytes: usize) -> Self {
        self.max_key_bytes = bytes;
        self
    }

    /// Whose key it is: keys of different tenants never meet. A request is refused if this returns `None` or an
    /// empty text for it.
    ///
    /// Take it from what was authenticated, such as an extension of the request that an authentication layer
    /// outside this one has set, never from what a client writes: whoever can name another tenant can read that
    /// tenant's responses.
    pub fn tenant(
        mut self,
        tenant: impl Fn(&request::Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.tenant = Some(Arc::new(tenant));
        self
    }

    /// Whose key it is, from an extension of the request that an authentication layer outside this one has set; a request
    /// without it is refused. See [`tenant`](Self::tenant).
    pub fn tenant_of<T: Send + Sync + 'static>(
        self,
        tenant: impl Fn(&T) -> String + Send + Sync + 'static,
    ) -> Self {
        self.tenant(move |request| request.extensions.get::<T>().map(&tenant))
    }

    /// All clients share one set of keys: a client that knows another's key and request gets its response, and the
    /// first client to use a key owns it. For an API behind which there is one client, or whose
    /// responses all of its clients may see.
    pub fn shared_by_all_clients(mut self) -> Self {
        self.tenant = None;
        self.shared = true;
        self
    }

    /// Stores the SHA-256 of tenant and key instead of both. A layer with this and one without do not
    /// find each other's records.
    pub const fn digest_keys(mut self) -> Self {
        self.digest_keys = true;
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

    /// How long the key of a process that died stays taken; 30 seconds unless set. It is renewed while
    /// the handler runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.operation = self.operation.lease(lease);
        self
    }

    /// A request whose key is in flight waits at most this long for the response, instead of being
    /// refused at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.operation = self.operation.wait(wait);
        self
    }

    /// What it means that a handler was begun and gave no answer: its process died, it panicked or took too long, a
    /// layer inside this one ended it (408, 504), its service failed, or its response broke off.
    /// [`OnCrash::Rerun`] unless set: the next request with the key runs it, with
    /// [`recovered`](crate::Context::recovered). With [`OnCrash::InDoubt`] nothing runs again before an operator says
    /// so; every 5xx counts as such an end then, unless [`release_status`](Self::release_status),
    /// [`keep_status`](Self::keep_status), [`keep_if`](Self::keep_if) or the handler's own
    /// [`Recording`](super::Recording) says what it is.
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.operation = self.operation.on_crash(on_crash);
        self
    }

    /// How many handlers may run at a time, those included whose clients have gone away; 1,024 unless set. A
    /// request beyond it is answered 503 `too-many-running`, and takes no key.
    pub const fn max_running(mut self, handlers: usize) -> Self {
        self.max_running = handlers;
        self
    }

    /// How long a handler may run, with the gathering of its response; 10 minutes unless set, `None` for no limit.
    /// It is ended then and answered 500 `handler-failed`: see [`on_crash`](Self::on_crash).
    pub fn handler_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.handler_timeout = timeout.into();
        self
    }

    /// When a key is due again whose response was not kept, such as a 503; at once unless set. That response has it in
    /// `Retry-After`, unless the handler set that itself; an earlier request is answered 409 `in-flight`.
    pub fn retry_after(mut self, retry_after: impl Into<RetryAfter>) -> Self {
        self.operation = self.operation.retry_after(retry_after);
        self
    }

    /// Runs the handler unprotected when the store is down, instead of answering 503.
    pub fn fail_open(mut self) -> Self {
        self.operation = self.operation.fail_open();
        self
    }

    /// How long one operation of the store may take, retries included; 5 seconds unless set.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.operation = self.operation.store_timeout(timeout);
        self
    }

    /// Responses of this status are kept. Unless set, all are but 401, 403, 407, 408, 425, 429 and 5xx, and
    /// failures of gRPC (`grpc-status`).
    pub fn keep_status(mut self, status: StatusCode) -> Self {
        self.statuses.insert(status, true);
        self
    }

    /// Responses of this status release the key.
    pub fn release_status(mut self, status: StatusCode) -> Self {
        self.statuses.insert(status, false);
        self
    }

    /// Decides instead of the status whether a response is kept. A handler's own
    /// [`Recording`](super::Recording) comes first.
    pub fn keep_if(mut self, keep_if: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.keep_if = Some(Arc::new(keep_if));
        self
    }

    /// Only these headers of a response are kept, without those that never are.
    pub fn allow_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers.allowed.get_or_insert_default().extend(names);
        self
    }

    /// These headers of a response are not kept either.
    ///
    /// Hop-by-hop headers, those that `Connection` names, `Date`, `Set-Cookie` and `Authentication-Info` never
    /// are.
    pub fn deny_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers.denied.extend(names);
        self
    }

    /// The largest body of a request, in bytes; 2 MiB unless set. It is held in memory. A larger one is
    /// refused with 413.
    pub const fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.max_request_bytes = bytes;
        self
    }

    /// The largest body of a response that is kept, in bytes; 1 MiB unless set. A larger one goes to the
    /// client and is not kept: a retry is told so.
    pub const fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// The header that marks a replay, with the value `true`; `Idempotency-Replayed` unless set.
    pub fn replay_marker(mut self, name: HeaderName) -> Self {
        self.marker = name;
        self
    }

    /// Where the API tells its clients how to use the header, for how long keys are kept and what the
    /// problems mean: every problem links there. The IETF's draft unless set.
    pub fn documentation(mut self, uri: impl Into<String>) -> Self {
        self.documentation = Some(uri.into());
        self
    }

    /// What comes before [`Problem::name`] in the `type` of a problem.
    pub fn problem_base(mut self, uri: impl Into<String>) -> Self {
        self.problem_base = uri.into();
        self
    }

    /// The whole `type` of one problem.
    pub fn problem_type(mut self, problem: Problem, uri: impl Into<String>) -> Self {
        self.problem_types.insert(problem, uri.into());
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] or [`Error::InvalidKey`] where an option has a value that cannot work,
    /// or two contradict each other.
    pub fn build(self) -> Result<IdempotencyLayer<St>, Error> {
        self.operation.validate()?;
        let refuse = |detail: &str| Err(Error::configuration("idem::http", detail));
        if self.tenant.is_none() && !self.shared {
            return refuse(
                "say whose keys they are: `.tenant(..)`, from what was authenticated, keeps clients apart; \
                 `.shared_by_all_clients()` does not",
            );
        }
        if self.max_running == 0 {
            return refuse("at least one handler must be allowed to run");
        }
        if !(1..=LONGEST_KEY).contains(&self.max_key_bytes) {
            return refuse("the longest key must be at least 1 byte and at most 952");
        }
        if let Some(fault) = self.fingerprint.fault() {
            return refuse(fault);
        }
        let link = match self.documentation.as_deref().map(describedby) {
            None => DRAFT,
            Some(Some(link)) => link,
            Some(None) => return refuse("the documentation must be a URI"),
        };
        Ok(IdempotencyLayer::of(self.assemble(link)))
    }

    pub(super) fn defaults(self) -> Config<St> {
        self.assemble(DRAFT)
    }

    fn assemble(self, link: HeaderValue) -> Config<St> {
        Config {
            store: self.store,
            operation: self.operation,
            scope: self.scope,
            methods: self.methods.into_iter().collect(),
            header: self.header,
            required: self.required,
            syntax: self.syntax,
            max_key_bytes: self.max_key_bytes,
            tenant: self.tenant,
            digest_keys: self.digest_keys,
            fingerprint: self.fingerprint,
            statuses: self.statuses,
            keep_if: self.keep_if,
            headers: self.headers,
            max_request_bytes: self.max_request_bytes,
            max_response_bytes: self.max_response_bytes,
            marker: self.marker,
            answers: Answers { base: self.problem_base, types: self.problem_types, link },
            running: Running::none(),
            max_running: self.max_running,
            handler_timeout: self.handler_timeout,
        }
    }
}

/// The value of a `Link` to this documentation, if it is a URI.
fn describedby(uri: &str) -> Option<HeaderValue> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"');
    if uri.is_empty() || !uri.bytes().all(plain) {
        return None;
    }
    HeaderValue::try_from(format!("<{uri}>; rel=\"describedby\"; type=\"text/html\"")).ok()
}

impl<St> fmt::Debug for Builder<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("operation", &self.operation).finish_non_exhaustive()
    }
}
