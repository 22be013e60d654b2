//! The handler of a guarded request: its task, its response, and what is recorded.
//!
//! Owns what is recorded for a response and what the client gets. Knows no framework: a handler is a future.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tracing::{Instrument as _, Span};

use super::body::{Body, BoxError, Gathered, gather};
use super::config::{Config, Fate, Recording, is_grpc_failure, streams};
use super::errors::{no_runtime, not_committed, refusal};
use super::recording;
use super::report::{self, Outcome};
use super::running::Counted;
use idem_core::Store;
use idem_core::protocol::{ResultFormat, StoredResult, Tombstone, Verdict};
use idem_runtime::problem::{Problem, ProblemDetails};
use idem_runtime::{Attempt, Error, Interrupted, Replayed};

/// The header that marks a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A request whose key is claimed and whose handler must run: see
/// [`IdempotencyLayer::begin`](super::IdempotencyLayer::begin). If it is dropped instead, it releases the key as if the
/// request had never come.
///
/// The handler runs in a separate task. A server drops the future of [`spawn`](Self::spawn) when the client has gone
/// away; the task continues.
#[must_use = "the handler runs by `spawn` or `spawn_local`; dropping this gives the key back"]
pub struct Run<St: Store> {
    // The order of the fields is the order of drop: the key is released before the place.
    unstarted: Unstarted<St>,
    place: Counted,
    config: Arc<Config<St>>,
    method: Method,
    span: Span,
}

impl<St: Store> Run<St> {
    pub(super) fn new(
        config: Arc<Config<St>>,
        unstarted: Unstarted<St>,
        place: Counted,
        request: &Request<Body>,
    ) -> Self {
        Self { unstarted, place, config, method: request.method().clone(), span: Span::none() }
    }

    /// With this span around the handler.
    pub(super) fn within(self, span: Span) -> Self {
        Self { span, ..self }
    }

    /// Runs the handler, records its response, and returns what the client gets: the response, or a problem if the
    /// handler panicked or took too long.
    ///
    /// # Errors
    ///
    /// The handler's own error, which releases the key.
    pub async fn spawn<F, R, E>(self, handler: F) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<R>, E>> + Send + 'static,
        R: http_body::Body + Send + 'static,
        R::Error: Into<BoxError>,
        E: Send + 'static,
    {
        let Self { unstarted, place, config, method, span } = self;
        let Ok(runtime) = Handle::try_current() else { return Ok(config.refuse(&no_runtime())) };
        let work = work(config.clone(), unstarted, place, method, handler).instrument(span.clone());
        // Boxed, because tokio would move the whole future several times.
        let task = runtime.spawn(Box::pin(work));
        let _end = EndOfClient::of(&config, &task);
        let ended = task.await;
        span.in_scope(|| answer(&config, ended))
    }

    /// As [`spawn`](Self::spawn), for a handler that is not `Send`, such as those of actix-web.
    ///
    /// # Errors
    ///
    /// The handler's own error, which releases the key.
    ///
    /// # Panics
    ///
    /// Outside a [`tokio::task::LocalSet`] or a local runtime.
    pub async fn spawn_local<F, R, E>(self, handler: F) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<R>, E>> + 'static,
        R: http_body::Body + Send + 'static,
        R::Error: Into<BoxError>,
        E: 'static,
    {
        let Self { unstarted, place, config, method, span } = self;
        let work = work(config.clone(), unstarted, place, method, handler).instrument(span.clone());
        let task = tokio::task::spawn_local(work);
        let _end = EndOfClient::of(&config, &task);
        let ended = task.await;
        span.in_scope(|| answer(&config, ended))
    }
}

impl<St: Store> fmt::Debug for Run<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Ends a handler in a transaction when its client goes away: nothing stays of it, and no connection waits for nobody.
struct EndOfClient(Option<AbortHandle>);

impl EndOfClient {
    fn of<St, T>(config: &Config<St>, task: &JoinHandle<T>) -> Self {
        Self(config.transaction.is_some().then(|| task.abort_handle()))
    }
}

impl Drop for EndOfClient {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// An attempt whose handler has not begun. If it is dropped, the key is released as if the request had never come.
pub(super) struct Unstarted<St: Store>(Option<Attempt<St>>);

impl<St: Store> Unstarted<St> {
    pub(super) const fn new(attempt: Attempt<St>) -> Self {
        Self(Some(attempt))
    }
}

impl<St: Store> Drop for Unstarted<St> {
    fn drop(&mut self) {
        if let Some(attempt) = self.0.take() {
            attempt.give_back();
        }
    }
}

/// The result of a handler's task.
type Ended<E> = Result<Served, Failed<E>>;

/// Why a handler's task has no response.
enum Failed<E> {
    /// The engine refused the call.
    Refused(Error),
    /// The handler's own error.
    Handler(E),
    /// Its response cannot be recorded, so its transaction was rolled back.
    TooLarge,
    /// Its transaction was not committed.
    NotCommitted,
}

/// The work of the handler's task. The place is free when the handler has ended, before its response is recorded.
async fn work<St, F, R, E>(
    config: Arc<Config<St>>,
    mut unstarted: Unstarted<St>,
    place: Counted,
    method: Method,
    handler: F,
) -> Ended<E>
where
    St: Store,
    F: Future<Output = Result<Response<R>, E>>,
    R: http_body::Body + Send + 'static,
    R::Error: Into<BoxError>,
{
    let Some(attempt) = unstarted.0.take() else {
        // Does not happen: it is taken once.
        return Err(Failed::Refused(Error::configuration(&config.scope, "the handler ran already")));
    };
    let settings = &*config;
    let served = async move {
        let _place = place;
        match handler.await {
            Ok(response) => Ok(serve(settings, &method, response).await),
            Err(error) => Err(error),
        }
    };
    match attempt.run(served).await {
        Ok((Ok(served), attempt)) => record(&config, attempt, served).await,
        Ok((Err(error), attempt)) => {
            attempt.abandon().await;
            Err(Failed::Handler(error))
        }
        Err(interrupted) => instead(interrupted),
    }
}

/// Records the response, and returns what the client gets.
async fn record<St: Store, E>(config: &Config<St>, attempt: Attempt<St>, mut served: Served) -> Ended<E> {
    let is_in_transaction = config.transaction.is_some();
    let limit = config.store.max_result_bytes().filter(|_| is_in_transaction);
    let result = match &served.record {
        Record::Whole(bytes) if limit.is_none_or(|limit| bytes.len() <= limit) => {
            StoredResult::Value(bytes.clone())
        }
        Record::Whole(_) | Record::Tombstone if is_in_transaction => {
            attempt.fail(None).await;
            return Err(Failed::TooLarge);
        }
        Record::Whole(_) | Record::Tombstone => StoredResult::Tombstone(Tombstone::TooLarge),
        Record::Nothing | Record::Replay => {
            attempt.fail(None).await;
            return Ok(served);
        }
        Record::Crash => {
            attempt.abandon().await;
            return Ok(served);
        }
        Record::Forget => {
            return attempt.forget().await.map_or_else(instead, |()| Ok(served));
        }
    };
    let status = served.response.status();
    // As a terminal error in a transaction: it is recorded, and its writes are undone.
    let is_undone = is_in_transaction && (status.is_client_error() || status.is_server_error());
    let verdict = if is_undone { Verdict::Failed } else { Verdict::Completed };
    match attempt.record(verdict, result).await {
        Ok(idem_runtime::Outcome::Unrecorded { .. }) if is_in_transaction => Err(Failed::NotCommitted),
        Ok(outcome) => {
            served.response.extensions_mut().insert(outcome);
            Ok(served)
        }
        Err(interrupted) => instead(interrupted),
    }
}

/// What the client of a handler that lost its key gets.
fn instead<St: Store, E>(interrupted: Interrupted<St>) -> Ended<E> {
    let response = match interrupted {
        Interrupted::Replay(replay) => replayed(&replay),
        Interrupted::Refused(error) => Err(error),
    };
    response.map(|response| Served { response, record: Record::Replay }).map_err(Failed::Refused)
}

/// The recorded response, marked as such.
pub(super) fn replayed<St: Store>(replay: &Replayed<St>) -> Result<Response<Body>, Error> {
    let mut response = replay.decode_with(|_, bytes| match ResultFormat::of(bytes) {
        None | Some(ResultFormat::Response) => {
            recording::decode(bytes).ok_or_else(|| "it is not a recorded response".to_owned())
        }
        Some(other) => Err(format!("expected {}, found {other}", ResultFormat::Response)),
    })?;
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response.extensions_mut().insert(replay.outcome());
    Ok(response)
}

/// The response to the client after the task has ended, in the span of the request.
fn answer<St, E>(config: &Config<St>, ended: Result<Ended<E>, JoinError>) -> Result<Response<Body>, E> {
    let answered = answer_of(config, ended);
    if let Ok(response) = &answered {
        report::answered(&Span::current(), response.status());
    }
    answered
}

fn answer_of<St, E>(config: &Config<St>, ended: Result<Ended<E>, JoinError>) -> Result<Response<Body>, E> {
    let served = match ended {
        Ok(Ok(served)) => served,
        Ok(Err(Failed::Refused(Error::TimedOut { .. }))) => return Ok(config.handler_failed("took too long")),
        Ok(Err(Failed::Refused(error))) => return Ok(config.refuse(&refusal(&error))),
        Ok(Err(Failed::TooLarge)) => return Ok(config.handler_failed("has a response too large to record")),
        Ok(Err(Failed::NotCommitted)) => return Ok(config.refuse(&not_committed())),
        Ok(Err(Failed::Handler(error))) => {
            report::outcome(&config.scope, Outcome::Failed);
            return Err(error);
        }
        Err(ended) if ended.is_panic() => return Ok(config.handler_failed("panicked")),
        Err(_) => return Ok(config.handler_failed("was ended with the server")),
    };
    let outcome = match served.record {
        // This handler ran, but another process has recorded the response of this request.
        Record::Replay => Outcome::Replayed,
        Record::Nothing | Record::Crash | Record::Forget => Outcome::Released,
        Record::Whole(_) | Record::Tombstone => Outcome::Handled,
    };
    report::outcome(&config.scope, outcome);
    Ok(served.response)
}

impl<St> Config<St> {
    fn handler_failed(&self, how: &'static str) -> Response<Body> {
        report::handler_ended(&self.scope, how);
        let what_next = if self.reruns {
            "Send the same request with the same key again."
        } else {
            "It is not processed again before somebody has found out what it did."
        };
        let how = if how == "panicked" { "failed unexpectedly" } else { how };
        let detail = format!("The processing of the request {how}. {what_next}");
        self.refuse(&ProblemDetails::new(Problem::HandlerFailed, detail))
    }
}

/// A response, and what to record for it.
pub(super) struct Served {
    pub(super) response: Response<Body>,
    record: Record,
}

enum Record {
    /// Nothing, because the key must be released.
    Nothing,
    /// Nothing, and the record must be deleted.
    Forget,
    /// Nothing, because the response is the recorded one.
    Replay,
    /// That its handler began and did not answer.
    Crash,
    /// These bytes.
    Whole(Bytes),
    /// That there was a response, without its bytes.
    Tombstone,
}

/// Makes the response to the client from the handler's response, and decides what is recorded.
async fn serve<St, R>(config: &Config<St>, method: &Method, response: Response<R>) -> Served
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
        // The body ended early without an error, or the header has a wrong length. The server must notice that, as it
        // would without the layer.
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
            untouched(parts, Body::whole(data, trailers), Record::Whole(bytes))
        }
        Gathered::TooLarge(body) => untouched(parts, body, Record::Tombstone),
        // Nobody has got the whole response, and its handler had begun.
        Gathered::Broken { read, .. } => untouched(parts, read, Record::Crash),
    }
}

/// Whether the trailers say that the call failed, and the handler did not ask to keep the response.
fn fails(response: &Parts, trailers: Option<&HeaderMap>) -> bool {
    trailers.is_some_and(is_grpc_failure) && response.extensions.get() != Some(&Recording::Keep)
}

/// Whether a response has as many bytes as its `Content-Length` says. In a response that never has a body, the header
/// gives the length that the body would have (RFC 9110, section 8.6).
fn is_as_long_as_said(method: &Method, response: &Parts, length: usize) -> bool {
    let bodiless = method == Method::HEAD
        || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let declared = response.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    (bodiless && length == 0) || declared.is_none_or(|declared: u64| declared == length as u64)
}
