//! One guarded request, from its key to the start of its handler.
//!
//! Owns the order in which the layer reads the key and the tenant, reads the whole body, computes the
//! fingerprint and claims the key. The engine owns the protocol. `handling` owns what follows the claim.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use tracing::Instrument as _;

use super::body::{Body, Gathered, discard, gather};
use super::config::Config;
use super::errors::{misconfigured, refusal, too_many_running};
use super::guard::Guard;
use super::handling::Run;
use super::key::{self, HEADER};
use super::long_operation::{LongOperation, name_of_key, name_of_request};
use super::report;
use idem_core::{Key, Store};
use idem_runtime::problem::{Problem, ProblemDetails};
use idem_runtime::{Error, Operation};

/// What to do with a request: see [`IdempotencyLayer::begin`](super::IdempotencyLayer::begin).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for one `match`")]
pub enum Begun<St: Store> {
    /// Send this response to the client and do not run the handler: the recorded response, or a problem.
    Answered(Response<Body>),
    /// Run the handler with [`Run::spawn`] or [`Run::spawn_local`]. The body of the request is whole in
    /// memory.
    Run(Run<St>, Request<Body>),
}

impl<St: Store> Config<St> {
    pub(super) fn guard_of(&self, head: &Parts) -> Result<Guard, ProblemDetails> {
        unless_panic(|| (self.guard)(head))
    }

    fn key(&self, head: &Parts) -> Result<String, ProblemDetails> {
        let key = key::read(&head.headers, self.guard_of(head)? == Guard::Quoted).map_err(|fault| {
            let detail = format!("The header `{HEADER}` holds no key: {fault}.");
            ProblemDetails::new(Problem::KeyMalformed, detail)
        })?;
        key.ok_or_else(|| {
            let detail = format!("This operation requires the header `{HEADER}` with a key of its own.");
            ProblemDetails::new(Problem::KeyMissing, detail)
        })
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

/// Calls a function of the user's program. If the function panics, the request is refused, and its connection
/// stays open.
fn unless_panic<T>(function: impl FnOnce() -> T) -> Result<T, ProblemDetails> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|_| misconfigured())
}

/// Does everything that comes before the handler of a guarded request.
pub(super) async fn begin<St: Store>(config: &Arc<Config<St>>, request: Request<Body>) -> Begun<St> {
    let span = report::span(&config.scope, request.method());
    let claiming = async {
        claim(config, request).await.unwrap_or_else(|refusal| Begun::Answered(config.refuse(&refusal)))
    };
    let begun = claiming.instrument(span.clone()).await;
    if let Begun::Answered(response) = &begun {
        report::answered(&span, response.status());
    }
    begun
}

async fn claim<St: Store>(
    config: &Arc<Config<St>>,
    request: Request<Body>,
) -> Result<Begun<St>, ProblemDetails> {
    let Prepared { operation, key, mut request, long_operation } = prepare(config, request).await?;
    match operation.begin(&config.store, key).await {
        Ok(idem_runtime::Begun::Run(attempt)) => {
            if let Some(attach) = &config.transaction {
                attach(attempt.context(), request.extensions_mut());
            }
            if let Some(long_operation) = &long_operation {
                request.extensions_mut().insert(long_operation.clone());
            }
            // A handler starts only if a permit is free: see `Builder::max_running`.
            let Ok(place) = config.places.clone().try_acquire_owned() else {
                attempt.give_back();
                return Err(too_many_running());
            };
            let run = Run::new(config.clone(), attempt, place, request.method().clone(), long_operation);
            Ok(Begun::Run(run, request))
        }
        Ok(idem_runtime::Begun::Replay(replay)) => Ok(Begun::Answered(config.replayed(&replay))),
        Err(error) => match long_operation {
            Some(long_operation) if matches!(error, Error::InFlight { reentrant: false, .. }) => {
                report::outcome(&config.scope, "accepted");
                Ok(Begun::Answered(long_operation.in_flight(Duration::ZERO)))
            }
            _ => Err(refusal(&error)),
        },
    }
}

/// A request that passed the checks of `prepare`. Its key is claimed next.
struct Prepared {
    operation: Operation,
    key: Key,
    request: Request<Body>,
    long_operation: Option<LongOperation>,
}

/// Makes all checks that do not need the store, and reads the body of the request.
async fn prepare<St: Store>(config: &Config<St>, request: Request<Body>) -> Result<Prepared, ProblemDetails> {
    let (parts, body) = request.into_parts();
    let (key, tenant) = match check(config, &parts) {
        Ok(checked) => checked,
        Err(refusal) => {
            // A client that sent `Expect` sends its body only after the server has begun to read, so there is
            // nothing to discard.
            if !parts.headers.contains_key(EXPECT) {
                discard(body);
            }
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
            // A duplicate does not wait, because its client gets the location of the operation at once.
            (operation.wait(Duration::ZERO), config.operation_key(tenant.as_deref(), &name), long_operation)
        }
    };
    let key = key.map_err(|_| misconfigured())?;
    let request = Request::from_parts(parts, Body::whole(data, trailers));
    Ok(Prepared { operation, key, request, long_operation })
}

/// The key and the tenant of a request, or why the layer refuses the request without reading its body.
fn check<St: Store>(config: &Config<St>, head: &Parts) -> Result<(String, Option<String>), ProblemDetails> {
    let key = config.key(head)?;
    if config.places.available_permits() == 0 {
        return Err(too_many_running());
    }
    Ok((key, config.tenant(head)?))
}

async fn whole(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Bytes, Option<HeaderMap>), ProblemDetails> {
    match gather(body, limit).await {
        Gathered::Whole(data, trailers) => Ok((data, trailers)),
        Gathered::TooLarge(rest) => {
            // If the declared length is too large, nothing was read. Then a client that sent `Expect` does
            // not send the body, and there is nothing to discard.
            if !headers.contains_key(EXPECT) || rest.size_hint().lower() <= limit as u64 {
                discard(rest);
            }
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
