//! The response of a handler: what the client gets, and what is recorded.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{Method, Response, StatusCode};

use super::body::{Body, Gathered, gather};
use super::config::{Config, Recording, is_grpc_failure};
use super::recording::{self, REPLAYED};
use idem_core::Store;

/// What to record for a response.
pub(super) enum Record {
    /// These bytes. The flag says whether the response is a failure.
    Whole(Bytes, bool),
    /// No bytes. `Keep` and `PassThrough` make a record that shows only that there was a response. In a
    /// transaction, they make no record, and the client gets a problem.
    Without(Recording),
}

/// Makes the response to the client from the handler's response, and decides what is recorded.
pub(super) async fn serve<St: Store>(
    config: &Config<St>,
    method: &Method,
    response: Response<Body>,
) -> (Response<Body>, Record) {
    let (mut parts, body) = response.into_parts();
    // Only a replay may have the header that marks a replay.
    parts.headers.remove(REPLAYED);
    let serve = |parts, body, record| (Response::from_parts(parts, body), record);
    match config.recording_of(&mut parts) {
        Recording::Keep => {}
        other => return serve(parts, body, Record::Without(other)),
    }
    let (data, trailers) = match gather(body, config.max_response_bytes).await {
        Gathered::Whole(data, trailers) => (data, trailers),
        Gathered::TooLarge(body) => return serve(parts, body, Record::Without(Recording::PassThrough)),
        // The handler had begun, and its client does not get the whole response. That counts as a crash.
        Gathered::Broken { read, .. } => return serve(parts, read, Record::Without(Recording::Crash)),
    };
    if !is_as_long_as_said(method, &parts, data.len()) {
        // The body ended early without an error, or `Content-Length` is wrong. The server must notice this,
        // as it would without the layer. So the body hides its real length.
        return serve(parts, Body::of_unsaid_length(data, trailers), Record::Without(Recording::Crash));
    }
    let fails_by_trailers = trailers.as_ref().is_some_and(is_grpc_failure);
    if fails_by_trailers && parts.extensions.get() != Some(&Recording::Keep) {
        return serve(parts, Body::whole(data, trailers), Record::Without(Recording::Release));
    }
    let bytes =
        recording::encode(&config.denied_headers, parts.status, &parts.headers, &data, trailers.as_ref());
    let is_failure = parts.status.is_client_error()
        || parts.status.is_server_error()
        || fails_by_trailers
        || is_grpc_failure(&parts.headers);
    // Without a transaction, the engine itself detects a response that is too large for the store. It then
    // records and reports only that the response was too large.
    let record = match config.transaction.is_some() && is_too_large(config, &bytes) {
        true => Record::Without(Recording::PassThrough),
        false => Record::Whole(bytes, is_failure),
    };
    serve(parts, Body::whole(data, trailers), record)
}

/// As [`serve`], for the end of a long operation. If the response streams or is too large to record, it goes
/// to the function that `large_results` set, if there is one.
pub(super) async fn serve_end<St: Store>(
    config: &Config<St>,
    method: &Method,
    response: Response<Body>,
) -> (Response<Body>, Record) {
    let (response, record) = serve(config, method, response).await;
    let is_lost = match &record {
        Record::Whole(bytes, _) => is_too_large(config, bytes),
        Record::Without(recording) => *recording == Recording::PassThrough,
    };
    match &config.large_result {
        Some(large_result) if is_lost => {
            let (parts, body) = response.into_parts();
            serve(config, method, large_result(parts, body).await).await
        }
        _ => (response, record),
    }
}

fn is_too_large<St: Store>(config: &Config<St>, bytes: &Bytes) -> bool {
    config.store.max_result_bytes().is_some_and(|limit| bytes.len() > limit)
}

/// The response has as many bytes as its `Content-Length` says, or does not have this header. An empty
/// response to a `HEAD`, or with the status 204 or 304, also passes: its header gives the length of a body
/// that is not sent (RFC 9110, section 8.6).
fn is_as_long_as_said(method: &Method, response: &Parts, length: usize) -> bool {
    let bodiless = method == Method::HEAD
        || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let declared = response.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    (bodiless && length == 0) || declared.is_none_or(|declared: u64| declared == length as u64)
}
