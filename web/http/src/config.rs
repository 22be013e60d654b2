//! The settings of a built layer.
//!
//! Owns the rules for how a request's key and tenant become a record's key, and for which responses are kept.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Response, StatusCode, request, response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Semaphore;

use super::body::Body;
use super::fingerprint::RequestFingerprint;
use super::guard::Guard;
use super::key;
use super::long_operation::LargeResult;
use super::report;
use super::transaction::Attach;
use idem_core::{Key, KeyError, MAX_KEY_BYTES, framed_digest, hex};
use idem_runtime::Operation;
use idem_runtime::problem::{Documentation, ProblemDetails};

pub(super) type Tenant = Arc<dyn Fn(&request::Parts) -> Option<String> + Send + Sync>;
pub(super) type Guarding = Arc<dyn Fn(&request::Parts) -> Guard + Send + Sync>;
pub(super) type Decide = Arc<dyn Fn(&response::Parts) -> Option<Recording> + Send + Sync>;

/// The prefix of a digest in a record's key. A digest replaces a tenant that is too long.
const DIGEST: &str = "sha256:";

/// The longest encoded tenant that a record's key contains unchanged: as long as a digest.
const LONGEST_TENANT: usize = DIGEST.len() + 64;

// A record's key has room for the longest tenant and the longest key of a client.
const _: () = assert!(LONGEST_TENANT + 1 + key::LONGEST <= MAX_KEY_BYTES);

/// What to do with a response. A handler sets it as an extension of the response.
///
/// ```
/// use http::Response;
/// use idem::http::Recording;
///
/// let mut response = Response::new("try again");
/// response.extensions_mut().insert(Recording::Release);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recording {
    /// Keep the response, whatever its status is, unless it streams or is too large.
    Keep,
    /// Treat the handler as crashed, because the response does not say what happened. The client still gets
    /// the response. See [`Builder::on_crash`](super::Builder::on_crash).
    Crash,
    /// Do not keep the response. The key is free again. The next request with the key must be the same
    /// request, and runs the handler.
    Release,
    /// Do not keep the response, and delete the record with its fingerprint. Use this if nothing was done:
    /// the next request with the key may differ, for example because the client has corrected it.
    Forget,
    /// Do not read the response into memory, because it is a stream. The record shows only that there was a
    /// response, so a retry gets the problem `response-not-stored`. If the status alone would free the key
    /// (such as a 503), the key becomes free here, too. If the layer runs handlers in transactions, it cannot
    /// record such a response, and answers 500 `handler-failed` instead.
    PassThrough,
}

#[derive(Clone)]
pub(super) struct Config<St> {
    pub(super) store: St,
    pub(super) operation: Operation,
    pub(super) store_timeout: Duration,
    /// Whether the handler may run again if it ended without a response.
    pub(super) reruns: bool,
    /// The scope, for events.
    pub(super) scope: Cow<'static, str>,
    pub(super) guard: Guarding,
    pub(super) tenant: Option<Tenant>,
    pub(super) fingerprint: RequestFingerprint,
    pub(super) forgotten: HashSet<StatusCode>,
    pub(super) recording: Option<Decide>,
    pub(super) denied_headers: HashSet<HeaderName>,
    pub(super) max_request_bytes: usize,
    pub(super) max_response_bytes: usize,
    pub(super) documentation: Documentation,
    /// One permit for each handler that may run at the same time.
    pub(super) places: Arc<Semaphore>,
    /// Gives each handler its transaction, if handlers run in transactions.
    pub(super) transaction: Option<Attach>,
    /// The path of the long operations, if handlers may answer 202 and continue.
    pub(super) operations: Option<String>,
    pub(super) large_result: Option<LargeResult>,
}

impl<St> Config<St> {
    /// What to do with this response. If the function of [`Builder::recording`](super::Builder::recording)
    /// decides, its decision becomes an extension of the response, as if the handler had set it.
    pub(super) fn recording_of(&self, response: &mut response::Parts) -> Recording {
        if response.extensions.get::<Recording>().is_none()
            && let Some(recording) = self.recording.as_ref().and_then(|recording| recording(response))
        {
            response.extensions.insert(recording);
        }
        let recording = match response.extensions.get() {
            None | Some(Recording::PassThrough) => self.recording_by_status(response),
            Some(recording) => *recording,
        };
        if recording == Recording::Keep && streams(response) { Recording::PassThrough } else { recording }
    }

    /// The default decision, which depends on the status. A status of `forget_status` deletes the record, and
    /// a failure of gRPC releases the key. A 408 or 504 counts as a crash, because a timeout interrupted the
    /// handler. The key is released if the client must authenticate (401, 403, 407) or retry (425, 429), or
    /// if the server failed (any other 5xx). With `OnCrash::InDoubt`, every 5xx counts as a crash instead.
    /// All other responses are kept.
    fn recording_by_status(&self, response: &response::Parts) -> Recording {
        match response.status.as_u16() {
            _ if self.forgotten.contains(&response.status) => Recording::Forget,
            _ if is_grpc_failure(&response.headers) => Recording::Release,
            408 | 504 => Recording::Crash,
            401 | 403 | 407 | 425 | 429 => Recording::Release,
            500..=599 if self.reruns => Recording::Release,
            500..=599 => Recording::Crash,
            _ => Recording::Keep,
        }
    }

    pub(super) fn refuse(&self, refusal: &ProblemDetails) -> Response<Body> {
        report::refused(&self.scope, refusal.problem());
        self.documentation.response(refusal).map(Body::from)
    }

    /// The key of a request's record: the encoded tenant, a slash, and the client's key.
    pub(super) fn record_key(&self, tenant: Option<&str>, key: &str) -> Result<Key, KeyError> {
        // The encoded tenant has no slash, so the key can follow unencoded.
        Key::new(format!("{}/{key}", encoded(tenant)))
    }

    /// The key of the record of a long operation. The operation's location must identify the record, and must
    /// not show the client's key.
    pub(super) fn operation_key(&self, tenant: Option<&str>, digest: &str) -> Result<Key, KeyError> {
        // The encoded tenant has neither `@` nor `/`, so this key never equals a key of `record_key`.
        Key::new(format!("{}@{digest}", encoded(tenant)))
    }
}

fn encoded(tenant: Option<&str>) -> Cow<'_, str> {
    let Some(tenant) = tenant else { return Cow::Borrowed("") };
    let encoded: Cow<'_, str> = utf8_percent_encode(tenant, NON_ALPHANUMERIC).into();
    // Encoded text has no colon, so no tenant can look like the digest of another tenant.
    if encoded.len() > LONGEST_TENANT {
        format!("{DIGEST}{}", hex(&framed_digest(&["idem http tenant", tenant]))).into()
    } else {
        encoded
    }
}

/// Whether these headers or trailers say that a gRPC call failed. The HTTP status does not show that, because
/// a failed call has the status 200, too.
pub(super) fn is_grpc_failure(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|status| status.as_bytes() != b"0")
}

/// Whether a response goes to the client without being read into memory: it is a stream, or the connection
/// changes its protocol.
fn streams(response: &response::Parts) -> bool {
    let value = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
        || response.status.is_informational()
        || response.extensions.get() == Some(&Recording::PassThrough)
}
