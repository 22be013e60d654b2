//! One guarded request, from its key to the start of its handler.
//!
//! Owns the order of the work: the key, its tenant, the whole request, the fingerprint, the engine's claim. The engine
//! owns the protocol, and `handling` what comes after.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tracing::Instrument as _;

use super::body::{Body, BoxError, Gathered, discard, gather};
use super::config::Config;
use super::errors::{misconfigured, refusal, too_many_running};
use super::guard::Guard;
use super::handling::{Run, Unstarted, replayed};
use super::key::{self, Syntax};
use super::long_operation::{LongOperation, name_of_key, name_of_request};
use super::report::{self, Outcome};
use idem_core::{Key, Store};
use idem_runtime::problem::{Problem, ProblemDetails};
use idem_runtime::{Error, Operation};

/// What to do with a request: see [`IdempotencyLayer::begin`](super::IdempotencyLayer::begin).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for one `match`")]
pub enum Begun<St: Store> {
    /// Send this response to the client and do not run the handler: the recorded response, or a problem.
    Answered(Response<Body>),
    /// Run the handler with [`Run::spawn`] or [`Run::spawn_local`]. The body of the request is whole in memory.
    Run(Run<St>, Request<Body>),
}

impl<St: Store> Config<St> {
    /// Whether a request is guarded.
    pub(super) fn guards(&self, head: &Parts) -> bool {
        match unless_panic(|| (self.guard)(head)) {
            Ok(Guard::Unguarded) => false,
            Ok(Guard::Optional) if !head.headers.contains_key(&self.header) => {
                report::outcome(&self.scope, Outcome::Unguarded);
                false
            }
            // A panic is answered where the request is read.
            Ok(Guard::Optional | Guard::Required | Guard::Quoted) | Err(_) => true,
        }
    }

    fn key(&self, head: &Parts) -> Result<String, ProblemDetails> {
        let syntax = match unless_panic(|| (self.guard)(head))? {
            Guard::Quoted => Syntax::Strict,
            Guard::Unguarded | Guard::Optional | Guard::Required => Syntax::Lenient,
        };
        match key::read(&head.headers, &self.header, syntax) {
            Ok(Some(key)) => Ok(key),
            Ok(None) => Err(ProblemDetails::new(
                Problem::KeyMissing,
                format!("This operation requires the header `{}` with a key of its own.", self.header),
            )),
            Err(fault) => Err(ProblemDetails::new(
                Problem::KeyMalformed,
                format!("The header `{}` holds no key: {fault}.", self.header),
            )),
        }
    }

    /// The tenant of a request; `None` if all clients share their keys.
    pub(super) fn tenant(&self, request: &Parts) -> Result<Option<String>, ProblemDetails> {
        let Some(tenant) = &self.tenant else { return Ok(None) };
        match unless_panic(|| tenant(request))? {
            Some(tenant) if !tenant.is_empty() => Ok(Some(tenant)),
            _ => Err(ProblemDetails::new(
                Problem::TenantMissing,
                "The request does not say whose idempotency key it has.",
            )),
        }
    }
}

/// What a function of the program returns. A panic in it costs this request, and not the connection.
fn unless_panic<T>(function: impl FnOnce() -> T) -> Result<T, ProblemDetails> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|_| misconfigured())
}

/// Everything that comes before the handler of a guarded request.
pub(super) async fn begin<St, B>(config: &Arc<Config<St>>, request: Request<B>) -> Begun<St>
where
    St: Store,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let span = report::span(&config.scope, request.method());
    let begun = begin_within(config, request).instrument(span.clone()).await;
    match begun {
        Begun::Answered(response) => {
            report::answered(&span, response.status());
            Begun::Answered(response)
        }
        Begun::Run(run, request) => Begun::Run(run.within(span), request),
    }
}

async fn begin_within<St, B>(config: &Arc<Config<St>>, request: Request<B>) -> Begun<St>
where
    St: Store,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let refused = |refusal: ProblemDetails| Begun::Answered(config.refuse(&refusal));
    let Prepared { operation, key, mut request, long_operation } = match prepare(config, request).await {
        Ok(prepared) => prepared,
        Err(refusal) => return refused(refusal),
    };
    match operation.begin(&config.store, key).await {
        Ok(idem_runtime::Begun::Run(attempt)) => {
            if let Some(attach) = &config.transaction {
                attach(attempt.context(), request.extensions_mut());
            }
            if let Some(long_operation) = long_operation {
                request.extensions_mut().insert(long_operation);
            }
            let unstarted = Unstarted::new(attempt);
            // The handler needs a free place before it starts. If there is none, the key is released.
            match config.running.place(config.max_running) {
                Some(place) => Begun::Run(Run::new(config.clone(), unstarted, place, &request), request),
                None => refused(too_many_running()),
            }
        }
        Ok(idem_runtime::Begun::Replay(replay)) => match replayed(&replay) {
            Ok(response) => {
                report::outcome(&config.scope, Outcome::Replayed);
                Begun::Answered(response)
            }
            Err(error) => refused(refusal(&error)),
        },
        Err(error) => match (&error, long_operation) {
            (Error::InFlight { reentrant: false, .. }, Some(long_operation)) => {
                report::outcome(&config.scope, Outcome::Accepted);
                Begun::Answered(long_operation.in_flight(Duration::ZERO))
            }
            _ => refused(refusal(&error)),
        },
    }
}

/// A request that may be claimed.
struct Prepared {
    operation: Operation,
    key: Key,
    request: Request<Body>,
    long_operation: Option<LongOperation>,
}

/// Makes all checks of a request that come before the first request to the store.
async fn prepare<St, B>(config: &Config<St>, request: Request<B>) -> Result<Prepared, ProblemDetails>
where
    St: Store,
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let key = match config.key(&parts) {
        Ok(key) => key,
        Err(refusal) => {
            discard(&parts.headers, Body::new(body));
            return Err(refusal);
        }
    };
    if config.running.count() >= config.max_running {
        discard(&parts.headers, Body::new(body));
        return Err(too_many_running());
    }
    let tenant = match config.tenant(&parts) {
        Ok(tenant) => tenant,
        Err(refusal) => {
            discard(&parts.headers, Body::new(body));
            return Err(refusal);
        }
    };
    let (data, trailers) = whole(&parts.headers, body, config.max_request_bytes).await?;
    let fingerprint = unless_panic(|| config.fingerprint.of(&parts, &data))?;
    let operation = config.operation.clone().computed_fingerprint(fingerprint);
    let (operation, key, long_operation) = match &config.operations {
        None => (operation, config.record_key(tenant.as_deref(), &key), None),
        Some(path) => {
            let name = name_of_key(tenant.as_deref(), &key);
            let long_operation = LongOperation::at(path, &name_of_request(&name, fingerprint));
            // Who has the place of an operation need not wait for its end.
            (operation.wait(Duration::ZERO), config.operation_key(tenant.as_deref(), &name), long_operation)
        }
    };
    let key = key.map_err(|_| misconfigured())?;
    let request = Request::from_parts(parts, Body::whole(data, trailers));
    Ok(Prepared { operation, key, request, long_operation })
}

/// The whole body of a request.
async fn whole<B>(
    headers: &HeaderMap,
    body: B,
    limit: usize,
) -> Result<(Bytes, Option<HeaderMap>), ProblemDetails>
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    match gather(body, limit).await {
        Gathered::Whole(data, trailers) => Ok((data, trailers)),
        Gathered::TooLarge(rest) => {
            discard(headers, rest);
            Err(ProblemDetails::new(
                Problem::RequestTooLarge,
                format!("The body of the request is larger than {limit} bytes. Nothing was processed."),
            ))
        }
        Gathered::Broken { limited: true, .. } => Err(ProblemDetails::new(
            Problem::RequestTooLarge,
            "The body of the request is larger than this server takes. Nothing was processed.",
        )),
        Gathered::Broken { .. } => Err(ProblemDetails::new(
            Problem::RequestIncomplete,
            "The body of the request ended early or is malformed. Nothing was processed.",
        )),
    }
}
