//! The response of a handler: what the client gets, and what is recorded.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use super::body::{Body, BoxError, Gathered, gather};
use super::config::{Config, Fate, Recording, is_grpc_failure, streams};
use super::recording::{self, REPLAYED};
use idem_core::Store;

/// A response, and what to record for it.
pub(super) struct Served {
    pub(super) response: Response<Body>,
    pub(super) record: Record,
}

pub(super) enum Record {
    /// Nothing, because the key must be released.
    Nothing,
    /// Nothing, and the record must be deleted.
    Forget,
    /// Nothing, because the response is the recorded one.
    Replay,
    /// That its handler began and did not answer.
    Crash,
    /// These bytes, and whether they are of a failure.
    Whole(Bytes, bool),
    /// That there was a response, without its bytes.
    Tombstone,
}

/// Makes the response to the client from the handler's response, and decides what is recorded.
pub(super) async fn serve<St, R>(config: &Config<St>, method: &Method, response: Response<R>) -> Served
where
    R: http_body::Body + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    // Only a replay may have the marker.
    parts.headers.remove(REPLAYED);
    let untouched = |parts, body, record| Served { response: Response::from_parts(parts, body), record };
    match config.fate(&mut parts) {
        Fate::Keep => {}
        Fate::Release => return untouched(parts, Body::new(body), Record::Nothing),
        Fate::Forget => return untouched(parts, Body::new(body), Record::Forget),
        Fate::Abandon => return untouched(parts, Body::new(body), Record::Crash),
    }
    if streams(&parts) {
        return untouched(parts, Body::new(body), Record::Tombstone);
    }
    match gather(body, config.max_response_bytes).await {
        // The body ended early without an error, or the header has a wrong length. The server must notice
        // that, as it would without the layer.
        Gathered::Whole(data, trailers) if !is_as_long_as_said(method, &parts, data.len()) => {
            untouched(parts, Body::of_unsaid_length(data, trailers), Record::Crash)
        }
        Gathered::Whole(data, trailers) if fails(&parts, trailers.as_ref()) => {
            untouched(parts, Body::whole(data, trailers), Record::Nothing)
        }
        Gathered::Whole(data, trailers) => {
            let bytes = recording::encode(
                &config.denied_headers,
                parts.status,
                &parts.headers,
                &data,
                trailers.as_ref(),
            );
            let is_failure = parts.status.is_client_error()
                || parts.status.is_server_error()
                || is_grpc_failure(&parts.headers)
                || trailers.as_ref().is_some_and(is_grpc_failure);
            untouched(parts, Body::whole(data, trailers), Record::Whole(bytes, is_failure))
        }
        Gathered::TooLarge(body) => untouched(parts, body, Record::Tombstone),
        // Nobody has got the whole response, and its handler had begun.
        Gathered::Broken { read, .. } => untouched(parts, read, Record::Crash),
    }
}

/// As [`serve`], for the end of a long operation. A response that cannot be recorded goes to the function
/// that keeps it elsewhere, if there is one.
pub(super) async fn serve_end<St: Store>(
    config: &Config<St>,
    method: &Method,
    response: Response<Body>,
) -> Served {
    let served = serve(config, method, response).await;
    let limit = config.store.max_result_bytes();
    let is_too_large = match &served.record {
        Record::Tombstone => true,
        Record::Whole(bytes, _) => limit.is_some_and(|limit| bytes.len() > limit),
        _ => false,
    };
    match &config.large_result {
        Some(large_result) if is_too_large => {
            let (parts, body) = served.response.into_parts();
            serve(config, method, large_result(parts, body).await).await
        }
        _ => served,
    }
}

/// Whether the trailers say that the call failed, and the handler did not ask to keep the response.
fn fails(response: &Parts, trailers: Option<&HeaderMap>) -> bool {
    trailers.is_some_and(is_grpc_failure) && response.extensions.get() != Some(&Recording::Keep)
}

/// Whether a response has as many bytes as its `Content-Length` says. In a response that never has a body,
/// the header gives the length that the body would have (RFC 9110, section 8.6).
fn is_as_long_as_said(method: &Method, response: &Parts, length: usize) -> bool {
    let bodiless = method == Method::HEAD
        || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let declared = response.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    (bodiless && length == 0) || declared.is_none_or(|declared: u64| declared == length as u64)
}
