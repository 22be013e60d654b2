//! What an HTTP client learns of an [`Error`](crate::Error): problem details (RFC 9457).
//!
//! Owns [`Problem`] and how a problem becomes a response. No text here contains a key. This module is in the
//! engine's crate, because only that crate can implement `axum_core::response::IntoResponse` for
//! [`Error`](crate::Error). `idem-http` refuses requests with these problems, too.

mod errors;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_TYPE, LINK, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

/// The time in `Retry-After` if the real time is unknown.
const SOON: Duration = Duration::from_secs(1);

/// The longest `Retry-After` while another request has the key. The process of that request is probably alive
/// and may answer at any time, so a client need not wait until the lease is over.
const LONGEST_IN_FLIGHT: Duration = Duration::from_secs(2);

/// The part of a problem's `type` before the problem's name, unless the API sets its own documentation. The
/// whole `type` leads to a section of the documentation of `idem::http`.
const PROBLEMS: &str = "https://docs.rs/idem-rs/latest/idem/http/#";

/// The link to the draft of the `Idempotency-Key` header, unless the API sets its own documentation.
const DRAFT: HeaderValue = HeaderValue::from_static(
    "<https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>; rel=\"describedby\"; \
     type=\"text/html\"",
);

macro_rules! problems {
    ($($(#[doc = $doc:literal])* $problem:ident = $name:literal, $status:ident, $title:literal;)*) => {
        /// Why a request was refused. The problem's `type` ends with its [`name`](Self::name). The response
        /// has the problem as an extension, so that a service outside the layer can answer in another form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Problem {
            $($(#[doc = $doc])* $problem,)*
        }

        impl Problem {
            /// All problems.
            pub const ALL: &[Self] = &[$(Self::$problem,)*];

            /// The name, status and title. Tests compare the headings of the documentation of `idem::http`,
            /// `docs/http.md` and the `OpenAPI` fragment with this table.
            const fn row(self) -> (&'static str, StatusCode, &'static str) {
                match self {
                    $(Self::$problem => ($name, StatusCode::$status, $title),)*
                }
            }
        }
    };
}

problems! {
    /// 400: the operation requires a key and the request has none.
    KeyMissing = "key-missing", BAD_REQUEST, "The idempotency key is missing";
    /// 400: the key of the request is not valid.
    KeyMalformed = "key-malformed", BAD_REQUEST, "The idempotency key is malformed";
    /// 400: the request does not say whose key it is.
    TenantMissing = "tenant-missing", BAD_REQUEST, "The request does not say whose idempotency key it is";
    /// 400: the request's body ended early.
    RequestIncomplete = "request-incomplete", BAD_REQUEST, "The request is incomplete";
    /// 413: the request's body is larger than the layer accepts.
    RequestTooLarge = "request-too-large", PAYLOAD_TOO_LARGE, "The request is too large";
    /// 409, with `Retry-After`: another request with this key is not answered yet, or the last one failed and
    /// the key is not due.
    InFlight = "in-flight", CONFLICT, "A request with this idempotency key is being processed";
    /// 422: the key was used with another request.
    KeyReused = "key-reused", UNPROCESSABLE_ENTITY, "The idempotency key was used with another request";
    /// 409: the request was processed, and its response was too large or a stream, so it is not kept.
    ResponseNotStored = "response-not-stored", CONFLICT,
        "The request was processed and its response is not kept";
    /// 409: the request may have been processed; somebody must find out.
    InDoubt = "in-doubt", CONFLICT, "It is not known whether the request was processed";
    /// 404: the client has no such long operation.
    OperationUnknown = "operation-unknown", NOT_FOUND, "The client has no operation of this name";
    /// 503, with `Retry-After`: the store failed.
    StoreUnavailable = "store-unavailable", SERVICE_UNAVAILABLE, "Idempotency keys cannot be checked now";
    /// 503, with `Retry-After`: the maximum number of handlers is running, or the server has no time left for
    /// the request.
    TooManyRunning = "too-many-running", SERVICE_UNAVAILABLE, "The server is busy";
    /// 500: the processing failed, for example because the handler panicked, took too long, or was ended with
    /// its server.
    HandlerFailed = "handler-failed", INTERNAL_SERVER_ERROR, "The request failed";
    /// 500: the layer is set up in a way that cannot work.
    Misconfigured = "misconfigured", INTERNAL_SERVER_ERROR, "The server is misconfigured";
}

impl Problem {
    /// The stable name of the problem.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.row().1
    }

    const fn title(self) -> &'static str {
        self.row().2
    }
}

/// What a client learns of one refused request: see [`Documentation::response`].
///
/// ```
/// use idem_runtime::Error;
/// use idem_runtime::problem::{Documentation, Problem, ProblemDetails};
///
/// let details = ProblemDetails::of(&Error::configuration("payments", "the ttl is zero"));
/// assert_eq!(details.problem(), Problem::Misconfigured);
/// assert_eq!(Documentation::default().response(&details).status(), 500);
/// ```
#[derive(Clone, Debug)]
pub struct ProblemDetails {
    problem: Problem,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
}

impl ProblemDetails {
    /// This problem. `detail` explains it to the client; it must not contain the text of a key. The response
    /// has a `Retry-After` of one second for a [`StoreUnavailable`](Problem::StoreUnavailable) and a
    /// [`TooManyRunning`](Problem::TooManyRunning).
    pub fn new(problem: Problem, detail: impl Into<Cow<'static, str>>) -> Self {
        let soon = matches!(problem, Problem::StoreUnavailable | Problem::TooManyRunning);
        let retry_after = soon.then_some(SOON);
        Self { problem, detail: detail.into(), retry_after }
    }

    /// Which problem it is.
    #[must_use]
    pub const fn problem(&self) -> Problem {
        self.problem
    }

    fn not_due(left: Duration) -> Self {
        let detail = "The last request with the same idempotency key failed. Send the same request with the same key \
                      again after the time in `Retry-After`.";
        Self { retry_after: Some(left), ..Self::new(Problem::InFlight, detail) }
    }

    fn in_flight(left: Option<Duration>) -> Self {
        let detail = "A request with the same idempotency key is being processed. Send the same request with \
                      the same key again after the time in `Retry-After`.";
        let retry_after = left.unwrap_or(SOON).min(LONGEST_IN_FLIGHT);
        Self { retry_after: Some(retry_after), ..Self::new(Problem::InFlight, detail) }
    }
}

/// Where the problems of an API are documented. The `type` of each problem and the `Link` header lead there.
/// Unless [set](Self::at), `type` leads to the documentation of `idem::http`, and `Link` to the draft of the
/// `Idempotency-Key` header.
#[derive(Clone, Debug)]
pub struct Documentation {
    /// The part of a problem's `type` before the problem's name.
    base: Cow<'static, str>,
    link: HeaderValue,
}

impl Default for Documentation {
    fn default() -> Self {
        Self { base: Cow::Borrowed(PROBLEMS), link: DRAFT }
    }
}

impl Documentation {
    /// The documentation at this URI; `None` if `uri` is not a URI. The `type` of a problem leads to the
    /// problem's section: the `type` is the URI, then `#` unless the URI ends with `#` or `/`, then the
    /// problem's [name](Problem::name).
    #[must_use]
    pub fn at(uri: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"');
        if uri.is_empty() || !uri.bytes().all(plain) {
            return None;
        }
        let link = format!("<{uri}>; rel=\"describedby\"; type=\"text/html\"");
        let section = if uri.ends_with(['#', '/']) { "" } else { "#" };
        Some(Self { base: format!("{uri}{section}").into(), link: HeaderValue::try_from(link).ok()? })
    }

    /// The response to a refused request: `application/problem+json`, with the [`Problem`] as an extension.
    #[must_use]
    pub fn response(&self, details: &ProblemDetails) -> Response<Bytes> {
        let ProblemDetails { problem, detail, retry_after } = details;
        let document = json!({
            "type": format!("{}{}", self.base, problem.name()),
            "title": problem.title(),
            "status": problem.status().as_u16(),
            "detail": detail,
        });
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = problem.status();
        response.extensions_mut().insert(*problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static("en"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(LINK, self.link.clone());
        if let Some(time) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds(*time)));
        }
        response
    }
}

/// The time, rounded up to whole seconds, the unit of `Retry-After`. At least one second, because zero would
/// ask for a retry at once.
fn seconds(time: Duration) -> u64 {
    let rounded = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    rounded.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_wait_is_rounded_up_to_the_next_second_and_no_further() {
        for (millis, expected) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected, "{millis} ms");
        }
    }
}
