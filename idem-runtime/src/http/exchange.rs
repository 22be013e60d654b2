//! One guarded request: from its key to its response.
//!
//! Owns the order of things: whose key, the whole request, the fingerprint, the engine's call, the
//! answer. The protocol is the engine's.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower_service::Service;

use super::body::{Body, BoxError, Gathered, discard, gather};
use super::config::{Config, Fate, is_grpc_failure, streams};
use super::problem::{Problem, Refusal, seconds};
use super::recording;
use super::report::{self, Outcome};
use super::running::Running;
use crate::engine::{self, Call, Codec, Encoded, Entered, Failure, NotDecoded, Unbound};
use crate::error::{Error, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{ResultFormat, StoredResult, Tombstone, Verdict};

/// A request that has a key.
pub(super) struct Exchange<S, St> {
    pub(super) config: Arc<Config<St>>,
    /// The service that is ready.
    pub(super) inner: S,
    pub(super) key: String,
}

/// A response, and what is to be recorded of it.
struct Served {
    response: Response<Body>,
    record: Record,
}

impl Served {
    /// Tells the client when the same request has a chance, unless the handler did.
    fn due_after(mut self, due: Option<Duration>) -> Self {
        if let (Record::Nothing, Some(due)) = (&self.record, due) {
            let headers = self.response.headers_mut();
            headers.entry(RETRY_AFTER).or_insert_with(|| HeaderValue::from(seconds(due)));
        }
        self
    }
}

enum Record {
    /// It is a replay, or the key is to be free again.
    Nothing,
    /// That its handler was begun and gave no answer.
    Crash,
    /// These bytes.
    Whole(Bytes),
    /// That there was one.
    Tombstone,
}

impl<S, St, R> Exchange<S, St>
where
    St: Store,
    S: Service<Request<Body>, Response = Response<R>, Error: Send, Future: Send> + Clone + Send + 'static,
    S::Error: 'static,
    S::Future: 'static,
    R: http_body::Body + Send + 'static,
    R::Error: Into<BoxError>,
{
    pub(super) async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let config = self.config.clone();
        let refused = |refusal: Refusal| Ok(config.refuse(&refusal));
        if config.running.count() >= config.max_running {
            let (parts, body) = request.into_parts();
            discard(&parts.headers, Body::new(body));
            return refused(too_many_running());
        }
        let (call, request) = match prepare(&config, &self.key, request).await {
            Ok(prepared) => prepared,
            Err(refusal) => return refused(refusal),
        };
        let entering = async { engine::enter(call.prepare().map_err(|error| *error)?).await };
        let entered = match entering.await {
            Ok(entered) => entered,
            Err(error) => return refused(refusal(&error)),
        };
        match self.run(entered, request).await {
            Ok((served, outcome)) => {
                report::outcome(&config.scope, outcome);
                Ok(served.response)
            }
            Err(Failed::Refused(refusal)) => refused(refusal),
            Err(Failed::Inner(error)) => {
                report::outcome(&config.scope, Outcome::Failed);
                Err(error)
            }
        }
    }

    /// Replays, or runs the handler in a task of its own, which goes on when the client goes away.
    async fn run(
        self,
        mut entered: Entered<St>,
        request: Request<Body>,
    ) -> Result<(Served, Outcome), Failed<S::Error>> {
        let mut codec = Responses { config: self.config.clone(), due: Cell::new(None) };
        let Self { config, mut inner, .. } = self;
        let serving = config.clone();
        let body = async move {
            let method = request.method().clone();
            Unbound(match inner.call(request).await {
                Ok(response) => Ok(serve(&serving, &method, response).await),
                Err(error) => Err(error),
            })
        };
        let runs_body = entered.runs_body();
        // A place is taken before the handler is begun; without one the key is given back.
        let place = if runs_body {
            let place = config.running.place(config.max_running);
            Some(place.ok_or_else(|| Failed::Refused(too_many_running()))?)
        } else {
            None
        };
        let limit = config.handler_timeout.filter(|_| runs_body);
        let call = async move {
            let body = pin!(Some(body));
            let finishing = engine::finish(&mut entered, &mut codec, body);
            let finished = match limit {
                None => Some(finishing.await),
                // What is dropped is a crash, whose policy the engine sees to.
                Some(limit) => timeout(limit, finishing).await.ok(),
            };
            finished.map(|served| served.map(|served| served.due_after(codec.due.get())))
        };
        let called = match place {
            None => call.await,
            Some(place) => {
                let runtime = Handle::try_current().map_err(|_| Failed::Refused(no_runtime()))?;
                Running::spawn(place, &runtime, call)
                    .await
                    .map_err(|ended| if ended.is_panic() { "panicked" } else { "was ended with the server" })
                    .map_err(|how| config.handler_failed(how))?
            }
        };
        let called = called.ok_or_else(|| config.handler_failed("took too long"))?;
        let served = called.map_err(|failure| match failure {
            Failure::Idem(error) => Failed::Refused(refusal(&error)),
            Failure::Body(error) => Failed::Inner(error),
        })?;
        let outcome = match served.record {
            Record::Nothing if served.response.headers().contains_key(&config.marker) => Outcome::Replayed,
            Record::Nothing | Record::Crash => Outcome::Released,
            Record::Whole(_) | Record::Tombstone => Outcome::Handled,
        };
        Ok((served, outcome))
    }
}

impl<St> Config<St> {
    fn handler_failed<E>(&self, how: &'static str) -> Failed<E> {
        report::handler_ended(&self.scope, how);
        let what_next = if self.operation.reruns() {
            "Send the same request with the same key again."
        } else {
            "It is not processed again before somebody has found out what it did."
        };
        let how = if how == "panicked" { "failed unexpectedly" } else { how };
        let detail = format!("The processing of the request {how}. {what_next}");
        Failed::Refused(Refusal::new(Problem::HandlerFailed, detail))
    }
}

/// Why there is no response of the handler's.
enum Failed<E> {
    Refused(Refusal),
    Inner(E),
}

/// All that can be wrong with a request before the store is asked.
async fn prepare<St, B>(
    config: &Config<St>,
    key: &str,
    request: Request<B>,
) -> Result<(Call<St>, Request<Body>), Refusal>
where
    St: Store,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let tenant = match config.tenant.as_ref().map(|tenant| tenant(&parts)) {
        None => None,
        Some(Some(tenant)) if !tenant.is_empty() => Some(tenant),
        Some(_) => {
            discard(&parts.headers, Body::new(body));
            return Err(Refusal::new(Problem::TenantMissing, "Whose idempotency key it is cannot be told."));
        }
    };
    let (data, trailers) = whole(&parts.headers, body, config.max_request_bytes).await?;
    let fingerprint = config.fingerprint.of(&parts, &data);
    let operation = config.operation.clone().with_fingerprint(Some(Ok(fingerprint)));
    let key = config.record_key(tenant.as_deref(), key);
    let call = Call::new(operation, config.store.clone(), key);
    Ok((call, Request::from_parts(parts, Body::whole(data, trailers))))
}

/// The whole body of a request.
async fn whole<B>(headers: &HeaderMap, body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), Refusal>
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    match gather(body, limit).await {
        Gathered::Whole(data, trailers) => Ok((data, trailers)),
        Gathered::TooLarge(rest) => {
            discard(headers, rest);
            Err(Refusal::new(
                Problem::RequestTooLarge,
                format!("The body of the request is larger than {limit} bytes. Nothing was processed."),
            ))
        }
        Gathered::Broken { limited: true, .. } => Err(Refusal::new(
            Problem::RequestTooLarge,
            "The body of the request is larger than this server takes. Nothing was processed.",
        )),
        Gathered::Broken { .. } => Err(Refusal::new(
            Problem::RequestIncomplete,
            "The body of the request ended early or is malformed. Nothing was processed.",
        )),
    }
}

/// What goes to the client of a handler's response, and what is recorded.
async fn serve<St, R>(config: &Config<St>, method: &Method, response: Response<R>) -> Served
where
    R: http_body::Body + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    // Only a replay is marked as one.
    parts.headers.remove(&config.marker);
    let untouched = |parts, body, record| Served { response: Response::from_parts(parts, body), record };
    match config.fate(&parts) {
        Fate::Keep => {}
        Fate::Release => return untouched(parts, Body::new(body), Record::Nothing),
        Fate::Abandon => return untouched(parts, Body::new(body), Record::Crash),
    }
    if streams(&parts) {
        return untouched(parts, Body::new(body), Record::Tombstone);
    }
    match gather(body, config.max_response_bytes).await {
        // It broke off without an error, or says a wrong length: the server is to find out, as it would have.
        Gathered::Whole(data, trailers) if !is_as_long_as_said(method, &parts, data.len()) => {
            untouched(parts, Body::of_unsaid_length(data, trailers), Record::Crash)
        }
        Gathered::Whole(data, trailers) if trailers.as_ref().is_some_and(is_grpc_failure) => {
            untouched(parts, Body::whole(data, trailers), Record::Nothing)
        }
        Gathered::Whole(data, trailers) => {
            let bytes =
                recording::encode(&config.headers, parts.status, &parts.headers, &data, trailers.as_ref());
            untouched(parts, Body::whole(data, trailers), Record::Whole(bytes))
        }
        Gathered::TooLarge(body) => untouched(parts, body, Record::Tombstone),
        // Nobody has had this response whole, and its handler had begun.
        Gathered::Broken { read, .. } => untouched(parts, read, Record::Crash),
    }
}

/// Whether a response has as many bytes as its `Content-Length` says. Where there is no body by
/// definition, it says what there would have been (RFC 9110, section 8.6).
fn is_as_long_as_said(method: &Method, response: &Parts, length: usize) -> bool {
    let bodiless = method == Method::HEAD
        || matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let said = response.headers.get(CONTENT_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
    (bodiless && length == 0) || said.is_none_or(|said: u64| said == length as u64)
}

/// How responses are kept.
struct Responses<St> {
    config: Arc<Config<St>>,
    /// When the key is due again, once it was released.
    due: Cell<Option<Duration>>,
}

impl<St, E> Codec<Served, Failure<E>> for Responses<St> {
    fn encode(&self, result: &Result<Served, Failure<E>>, _: usize) -> Option<Encoded> {
        let stored = match &result.as_ref().ok()?.record {
            Record::Nothing | Record::Crash => return None,
            Record::Whole(bytes) => StoredResult::Value(bytes.clone()),
            Record::Tombstone => StoredResult::Tombstone(Tombstone::TooLarge),
        };
        Some(Encoded::new(Verdict::Completed, stored.into()))
    }

    fn retry_after(&self, _: &Result<Served, Failure<E>>, attempt: u32) -> Option<Duration> {
        self.due.set(self.config.operation.retry_delay(attempt));
        self.due.get()
    }

    fn is_crash(&self, result: &Result<Served, Failure<E>>) -> bool {
        result.as_ref().map_or(true, |served| matches!(served.record, Record::Crash))
    }

    fn decode(&self, _: Verdict, bytes: &[u8]) -> Result<Result<Served, Failure<E>>, NotDecoded> {
        NotDecoded::unless_written_as(ResultFormat::Response, bytes)?;
        let mut response =
            recording::decode(bytes).ok_or_else(|| NotDecoded::because("it is not a recorded response"))?;
        response.headers_mut().insert(self.config.marker.clone(), HeaderValue::from_static("true"));
        Ok(Ok(Served { response, record: Record::Nothing }))
    }
}

/// What the client is told instead of the engine's error.
pub(super) fn refusal(error: &Error) -> Refusal {
    match error {
        Error::InFlight { retry_after, .. } => Refusal::in_flight(Some(*retry_after)),
        Error::NotDue { retry_after, .. } => Refusal::not_due(*retry_after),
        // Another attempt has taken over, and nothing is known of it yet.
        Error::LeaseLost { .. } => Refusal::in_flight(None),
        Error::Mismatch { .. } => Refusal::new(
            Problem::KeyReused,
            "The idempotency key was used before with another request. Use a new key for a new request, or \
             send the first request again as it was.",
        ),
        Error::Undecodable { .. } => Refusal::new(
            Problem::InDoubt,
            "A request with this idempotency key was processed, and this server cannot read the response that is \
             recorded. It is not processed again before somebody has found out what it did.",
        ),
        Error::ResultNotStored { .. } => Refusal::new(
            Problem::ResponseNotStored,
            "A request with this idempotency key was processed, and its response was too large to keep or a \
             stream. It is not processed again. Look up what it did.",
        ),
        Error::InDoubt { .. } | Error::Exhausted { .. } => Refusal::new(
            Problem::InDoubt,
            "A request with this idempotency key was begun and never finished. It is not processed again \
             before somebody has found out what it did.",
        ),
        // There is a record: what it stands for may have been done.
        Error::Store { source, .. } if source.kind() == StoreErrorKind::CorruptRecord => Refusal::new(
            Problem::InDoubt,
            "What is recorded under this idempotency key cannot be read, so that it is not known whether the \
             request was processed. It is not processed again before somebody has found out.",
        ),
        Error::TimedOut { .. } => Refusal::new(
            Problem::HandlerFailed,
            "The processing of the request took too long and was stopped.",
        ),
        // A handler has it itself, so it cannot come here.
        Error::Step { .. } => Refusal::new(Problem::HandlerFailed, "The processing of the request failed."),
        Error::Store { .. } | Error::NotRecorded { .. } => Refusal::new(
            Problem::StoreUnavailable,
            "Idempotency keys cannot be checked now. Nothing was processed; send the same request with the \
             same key again after the time in `Retry-After`.",
        ),
        Error::MissingKey { .. } | Error::InvalidKey { .. } | Error::Configuration { .. } => Refusal::new(
            Problem::Misconfigured,
            "The server cannot check idempotency keys. Nothing was processed.",
        ),
    }
}

fn no_runtime() -> Refusal {
    Refusal::new(Problem::Misconfigured, "The server cannot process requests with idempotency keys.")
}

fn too_many_running() -> Refusal {
    Refusal::new(
        Problem::TooManyRunning,
        "The server processes as many requests as it takes. Nothing was processed; send the same request with the \
         same key again after the time in `Retry-After`.",
    )
}
