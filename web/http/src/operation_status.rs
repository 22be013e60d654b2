//! The answers at the location of a long operation. This service reads the record and never claims it.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::timeout;
use tower_service::Service;

use super::body::Body;
use super::config::Config;
use super::errors::misconfigured;
use super::layer::IdempotencyLayer;
use super::long_operation::{LongOperation, OF_KEY, name_of_request};
use super::recording;
use idem_core::listing::List;
use idem_core::protocol::{OnCrash, Record, State, StoredResult, Tombstone};
use idem_core::{RecordKey, Store, StoreError, StoreErrorKind};
use idem_runtime::problem::{Problem, ProblemDetails};

/// Why a location has no response: the problem and the detail that the client gets.
type Refusal = (Problem, &'static str);

// The client gets the same answer for an operation of another tenant, so the answer reveals nothing.
const UNKNOWN: Refusal = (
    Problem::OperationUnknown,
    "You have no such operation: it was never accepted, or its record has expired.",
);
const FAILED: Refusal = (
    Problem::HandlerFailed,
    "The operation failed or was interrupted, and has no response. Send the same request with the same key again.",
);
const IN_DOUBT: Refusal = (
    Problem::InDoubt,
    "The operation began, and it is not known how it ended. It does not begin again before somebody has found out \
     what it did.",
);
const NOT_STORED: Refusal = (
    Problem::ResponseNotStored,
    "The operation has ended, and its response was too large to keep or a stream. It does not begin again. Look up \
     what it did.",
);
const UNREADABLE: Refusal = (
    Problem::StoreUnavailable,
    "The state of the operation cannot be read now. Look again after the time in `Retry-After`.",
);

/// Answers a `GET` or `HEAD` of the location of a [`LongOperation`](super::LongOperation), whose page lists
/// the answers. [`IdempotencyLayer::operations`](super::IdempotencyLayer::operations) makes this service. The
/// service only reads, and changes nothing.
///
/// The name of the operation is the last segment of the path. The function of
/// [`Builder::tenant`](super::Builder::tenant) returns the tenant. So the authentication layer whose data
/// this function reads must also wrap this service.
#[derive(Clone, Debug)]
pub struct OperationStatus<St> {
    pub(super) layer: IdempotencyLayer<St>,
}

impl<St: Clone> IdempotencyLayer<St> {
    /// The service that answers a `GET` or `HEAD` of the location of a
    /// [long operation](super::LongOperation).
    #[must_use]
    pub fn operations(&self) -> OperationStatus<St> {
        OperationStatus { layer: self.clone() }
    }
}

impl<St: Store, B> Service<Request<B>> for OperationStatus<St> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (config, (head, _)) = (self.layer.config.clone(), request.into_parts());
        Box::pin(async move {
            let answer = config.status(&head).await;
            Ok(answer.unwrap_or_else(|state| match state.problem() {
                Problem::StoreUnavailable | Problem::Misconfigured => config.refuse(&state),
                // This answer emits no event. If the operation ended while its process lived, the layer
                // reported the end at that time.
                _ => config.documentation.response(&state).map(Body::from),
            }))
        })
    }
}

impl<St: Store> Config<St> {
    async fn status(&self, head: &Parts) -> Result<Response<Body>, ProblemDetails> {
        let path = self.operations.as_deref().ok_or_else(misconfigured)?;
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut response = Response::new(Body::from(Bytes::new()));
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let tenant = self.tenant(head)?;
        let name = head.uri.path().rsplit('/').next().unwrap_or_default();
        let looking = async {
            let of_key = name.get(..OF_KEY).ok_or(UNKNOWN)?;
            let key = self.operation_key(tenant.as_deref(), of_key).map_err(|_| UNKNOWN)?;
            let key = self.operation.record_key(key).map_err(|_| UNKNOWN)?;
            self.look(path, name, &key).await
        };
        let looked = timeout(self.store_timeout, looking).await.unwrap_or(Err(UNREADABLE));
        looked.map_err(|(problem, detail)| ProblemDetails::new(problem, detail))
    }

    async fn look(&self, path: &str, name: &str, key: &RecordKey) -> Result<Response<Body>, Refusal> {
        let mut record = self.read(key, name).await?;
        if record.state == State::InFlight {
            // The time comes from the store, because only the store's clock decides whether a lease is over.
            let page = self.store.list(&List::default().with_limit(1)).await;
            let now = page.map_err(|error| unreadable(&error))?.now;
            if record.lease_until <= now {
                // The lease may have been renewed, or the operation may have ended, while the clock was read.
                record = self.read(key, name).await?;
            }
            if record.state == State::InFlight && now < record.lease_until {
                let operation = LongOperation::at(path, name).ok_or(UNKNOWN)?;
                return Ok(operation.in_flight(now.since(record.created_at)));
            }
        }
        end(record)
    }

    /// The record of the operation with this name.
    async fn read(&self, key: &RecordKey, name: &str) -> Result<Record, Refusal> {
        let record = self.store.get(key).await.map_err(|error| unreadable(&error))?;
        let is_named = |record: &Record| {
            record.fingerprint.is_some_and(|print| name_of_request(&name[..OF_KEY], print) == name)
        };
        record.filter(is_named).ok_or(UNKNOWN)
    }
}

/// The answer at the location of an operation that no longer runs: its response, or why there is none.
fn end(record: Record) -> Result<Response<Body>, Refusal> {
    match (record.state, record.result) {
        (State::Completed | State::Failed, Some(StoredResult::Value(bytes))) => {
            let mut response = recording::replay(&bytes).ok_or(IN_DOUBT)?;
            // The answer at this location changes, so a cache must not keep it.
            response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            Ok(response)
        }
        (State::Completed | State::Failed, Some(StoredResult::Tombstone(Tombstone::Exhausted))) => {
            Err(IN_DOUBT)
        }
        (State::Completed | State::Failed, _) => Err(NOT_STORED),
        (State::InFlight, _) if record.on_crash == OnCrash::Rerun => Err(FAILED),
        (State::Released, _) => Err(FAILED),
        // A crashed operation under `OnCrash::InDoubt`, or a state that this version does not know.
        _ => Err(IN_DOUBT),
    }
}

fn unreadable(error: &StoreError) -> Refusal {
    match error.kind() {
        StoreErrorKind::CorruptRecord => IN_DOUBT,
        StoreErrorKind::WrongKeys => (Problem::Misconfigured, "The server cannot read its records."),
        _ => UNREADABLE,
    }
}
