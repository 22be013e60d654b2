//! Long operations: a handler answers 202, and the rest of its work continues without the client.
//!
//! Owns the name and the location of an operation, and what its handler gets. `operation_status` owns the
//! answers at the location. For the engine, an operation is one call, whose lease is renewed until the
//! operation ends.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::response::Parts;
use http::{Extensions, HeaderValue, Response, StatusCode, Uri};

use super::body::{Body, BoxError};
use idem_core::protocol::Fingerprint;
use idem_core::{framed_digest, hex};
use idem_runtime::Error;

/// The name of an operation begins with `OF_KEY` digits, which are also in the key of the operation's record.
/// `OF_REQUEST` digits follow, which also depend on the request.
pub(super) const OF_KEY: usize = 32;
const OF_REQUEST: usize = 16;

/// The function that `large_results` sets. It gets a response that streams or is too large to record, stores
/// the response elsewhere, and returns the response to record instead.
pub(super) type LargeResult = Arc<dyn Fn(Parts, Body) -> Work + Send + Sync>;

/// The work of a handler after its 202.
pub(super) type Work = BoxFuture<'static, Response<Body>>;

/// The first part of an operation's name. The key of the operation's record contains it.
pub(super) fn name_of_key(tenant: Option<&str>, key: &str) -> String {
    let mut name = hex(&framed_digest(&["idem http operation", tenant.unwrap_or_default(), key]));
    name.truncate(OF_KEY);
    name
}

/// The whole name of an operation. Its second part depends on the request. So someone who guesses a key, but
/// does not know the request, cannot read the response.
pub(super) fn name_of_request(name_of_key: &str, fingerprint: Fingerprint) -> String {
    let of_request = hex(&framed_digest(&["idem http request", name_of_key, &hex(fingerprint.as_bytes())]));
    format!("{name_of_key}{}", &of_request[..OF_REQUEST])
}

/// Whether operations can have locations below this path.
pub(super) fn is_path(path: &str) -> bool {
    let is_rooted = path.starts_with('/') || path.contains("://");
    is_rooted && !path.contains(['?', '#']) && format!("{path}/").parse::<Uri>().is_ok()
}

/// The long operation that a request may become: its handler answers 202 with a `Location`, and the work
/// continues, whether or not the client is still connected. With axum it is an extractor; elsewhere see
/// [`LongOperation::of`]. A layer allows long operations with
/// [`Builder::long_operations`](super::Builder::long_operations).
///
/// ```
/// # #[cfg(feature = "axum")]
/// # fn router() -> Result<axum::Router, idem::Error> {
/// use axum::Router;
/// use axum::http::StatusCode;
/// use axum::response::IntoResponse;
/// use axum::routing::{get_service, post};
/// use idem::MemoryStore;
/// use idem::http::{IdempotencyLayer, LongOperation};
///
/// async fn report(operation: LongOperation, year: String) -> Result<impl IntoResponse, StatusCode> {
///     if year.len() != 4 {
///         return Err(StatusCode::BAD_REQUEST); // an ordinary response, which is recorded
///     }
///     Ok(operation.accept(async move {
///         // .. an hour of work ..
///         (StatusCode::CREATED, format!("the report of {year}")).into_response()
///     }))
/// }
///
/// let layer = IdempotencyLayer::builder(MemoryStore::new())
///     .shared_by_all_clients()
///     .long_operations("/operations")
///     .handler_timeout(None)
///     .build()?;
/// let router = Router::new()
///     .route("/reports", post(report))
///     .route("/operations/{name}", get_service(layer.operations()))
///     .route_layer(layer);
/// # Ok(router)
/// # }
/// ```
///
/// | state of the operation | answer at its location | answer to the same request, sent again |
/// |---|---|---|
/// | it runs | 202 `{"state":"in_flight"}` with `Location` and `Retry-After` | the same 202; the handler does not run |
/// | it has a response that is kept | that response, with `Idempotency-Replayed: true` | the same response |
/// | it has a response that is too large to keep, or streams | 409 `response-not-stored`, unless [`large_results`](super::Builder::large_results) kept it | the same response |
/// | it failed (5xx, a panic, `handler_timeout`), or its process died and the lease is over | 500 `handler-failed` | the answer of the handler, which runs again |
/// | it failed, or its process died, under [`OnCrash::InDoubt`](idem_runtime::OnCrash::InDoubt) | 409 `in-doubt` | the same response |
/// | it is another tenant's, it was never accepted, or its record has expired | 404 `operation-unknown` | - |
///
/// The only record of an operation is the record of its request, so no second record can contradict it. RFC
/// 9110 calls a 202 "noncommittal", so the layer does not record it. The layer records the response at the
/// end. The draft of the header calls this response the "result of the previously completed operation". A
/// duplicate gets the 202 even before the handler has answered, and later finds the handler's response at the
/// location.
///
/// The location ends with 48 hexadecimal digits: 32 are a digest of tenant and key, and 16 are a digest of
/// the request. So someone who knows only a key cannot find the location. The service at the location needs
/// the tenant, so put this service behind the same authentication.
///
/// The work is a part of the handler. [`context`](idem_runtime::context) and steps can be used in the work,
/// and `max_running` and `handler_timeout` (10 minutes unless set) include the work. The layer renews the
/// lease until the work ends, and [`drain`](idem_runtime::drain) waits for the work. The response of the work
/// does not go through the layers inside the idempotency layer.
///
/// # Errors
///
/// If a request did not come through a layer with `long_operations`, the answer is 500 `misconfigured`.
///
/// # Cancellation
///
/// The work continues when the client has gone away. Only `handler_timeout`, the loss of its lease and the
/// end of its process can stop the work.
#[derive(Clone)]
pub struct LongOperation {
    location: HeaderValue,
    work: Arc<Mutex<Option<Work>>>,
}

impl LongOperation {
    /// The operation with this name. `None` cannot happen, because `is_path` accepted the path.
    pub(super) fn at(path: &str, name: &str) -> Option<Self> {
        let location = HeaderValue::try_from(format!("{}/{name}", path.trim_end_matches('/'))).ok()?;
        Some(Self { location, work: Arc::default() })
    }

    /// The long operation of the request with these extensions.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if the request did not come through a layer with `long_operations`.
    pub fn of(extensions: &Extensions) -> Result<Self, Error> {
        let detail = "the request cannot become a long operation: `Builder::long_operations` lets it";
        extensions.get().cloned().ok_or_else(|| Error::configuration("idem::http", detail))
    }

    /// The path or URI at which the client finds the operation's state and its response.
    #[must_use]
    pub const fn location(&self) -> &HeaderValue {
        &self.location
    }

    /// The 202 to return from the handler. `work` begins when the handler has returned this response. The
    /// layer records the response of `work` like a handler's. If the handler returns another status, `work`
    /// is dropped.
    #[must_use = "the work begins when the handler returns this response"]
    pub fn accept<F, R>(self, work: F) -> Response<Body>
    where
        F: Future<Output = Response<R>> + Send + 'static,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        *self.lock() = Some(boxed(work));
        self.in_flight(Duration::ZERO)
    }

    /// The work to do after the handler has answered with this status. `None` unless the status is 202 and
    /// the handler called [`accept`](Self::accept).
    pub(super) fn work(&self, status: StatusCode) -> Option<Work> {
        self.lock().take().filter(|_| status == StatusCode::ACCEPTED)
    }

    /// The response while the operation runs. `age` is the time since the operation began. `Retry-After` is a
    /// tenth of that time, but at least 1 and at most 30 seconds. So a client that polls after each
    /// `Retry-After` learns of the end at most that many seconds late.
    pub(super) fn in_flight(&self, age: Duration) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::from_static(br#"{"state":"in_flight"}"#)));
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(LOCATION, self.location.clone());
        headers.insert(RETRY_AFTER, HeaderValue::from((age.as_secs() / 10).clamp(1, 30)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LongOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongOperation").field("location", &self.location).finish_non_exhaustive()
    }
}

pub(super) fn boxed<F, R>(work: F) -> Work
where
    F: Future<Output = Response<R>> + Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    Box::pin(async move { work.await.map(Body::new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected digits come from Python's `hashlib`. They must not change, because clients keep names,
    /// and records have the first part of a name in their keys.
    #[test]
    fn a_name_has_the_digits_of_tenant_and_key_and_those_of_the_request() {
        let name = name_of_key(Some("acme"), "8e03978e");
        assert_eq!(name, "363b79a3abbb157c2ca6b356dbd33c32");
        let whole = name_of_request(&name, Fingerprint::from_bytes([7; 32]));
        assert_eq!(whole, "363b79a3abbb157c2ca6b356dbd33c32e2db6c79a2e85eb1");
        for (tenant, key) in [(None, "8e03978e"), (Some("acm"), "e8e03978e"), (Some("acme"), "8e03978f")] {
            assert_ne!(name_of_key(tenant, key), name);
        }
        assert_ne!(name_of_request(&name, Fingerprint::from_bytes([8; 32])), whole);
    }

    #[test]
    fn the_time_to_the_next_look_is_a_tenth_of_the_age_between_1_and_30_seconds() {
        let operation = LongOperation::at("https://api.example.com/operations/", "0a").unwrap();
        assert_eq!(operation.location(), "https://api.example.com/operations/0a");
        for (age, expected) in [(0, "1"), (19, "1"), (20, "2"), (250, "25"), (86_400, "30")] {
            let response = operation.in_flight(Duration::from_secs(age));
            assert_eq!(response.headers()[RETRY_AFTER], expected, "{age}");
        }
    }
}
