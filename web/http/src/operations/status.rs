//! What the place of a long operation answers. It reads the record, and never claims it.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::timeout;
use tower_service::Service;

use super::{OF_KEY, OF_REQUEST, Operations, digest_of_request, in_flight};
use crate::body::Body;
use crate::config::Config;
use crate::errors::{
    misconfigured, operation_failed, operation_in_doubt, operation_not_stored, operation_unknown,
    operation_unreadable,
};
use crate::handling::REPLAYED;
use crate::recording;
use idem_core::listing::List;
use idem_core::protocol::{OnCrash, Record, State, StoredResult, Timestamp, Tombstone};
use idem_core::{RecordKey, Scope, Store, StoreError, StoreErrorKind};
use idem_runtime::problem::ProblemDetails;

/// Answers a `GET` or `HEAD` of the place of a [`LongOperation`](crate::LongOperation), which has the answers. Made by
/// [`IdempotencyLayer::operations`](crate::IdempotencyLayer::operations).
///
/// The name of the operation is the last segment of the path. The tenant is that of the layer, so whatever sets it belongs
/// outside this service, too.
pub struct OperationStatus<St> {
    config: Arc<Config<St>>,
}

impl<St> OperationStatus<St> {
    pub(crate) const fn new(config: Arc<Config<St>>) -> Self {
        Self { config }
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
        let (config, (head, _)) = (self.config.clone(), request.into_parts());
        Box::pin(async move {
            let answer = config.status(&head).await;
            Ok(answer.unwrap_or_else(|problem| config.documentation.response(&problem).map(Body::from)))
        })
    }
}

impl<St> Clone for OperationStatus<St> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone() }
    }
}

impl<St> fmt::Debug for OperationStatus<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperationStatus")
    }
}

impl<St: Store> Config<St> {
    async fn status(&self, head: &Parts) -> Result<Response<Body>, ProblemDetails> {
        let operations = self.operations.as_ref().ok_or_else(misconfigured)?;
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut response = Response::new(Body::from(bytes::Bytes::new()));
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let tenant = self.tenant(head)?;
        let name = Name::of(head).ok_or_else(operation_unknown)?;
        let key = self.operation_key(tenant.as_deref(), name.key).map_err(|_| misconfigured())?;
        let scope = Scope::new(self.scope.clone()).map_err(|_| misconfigured())?;
        let key = RecordKey::new(scope, key);
        let looking = timeout(self.store_timeout, self.look(operations, &key, &name));
        looking.await.unwrap_or_else(|_| Err(operation_unreadable()))
    }

    async fn look(
        &self,
        operations: &Operations,
        key: &RecordKey,
        name: &Name<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        let mut record = self.read(key, name).await?;
        if record.state == State::InFlight {
            let now = self.now().await?;
            if record.lease_until <= now {
                // The lease may have been renewed, or the operation may have ended, while the clock was read.
                record = self.read(key, name).await?;
            }
            if record.state == State::InFlight && now < record.lease_until {
                let location = operations.location(&format!("{}{}", name.key, name.request));
                let location = location.ok_or_else(misconfigured)?;
                return Ok(in_flight(&location, now.since(record.created_at)));
            }
        }
        end(record)
    }

    /// The record of the operation with this name.
    async fn read(&self, key: &RecordKey, name: &Name<'_>) -> Result<Record, ProblemDetails> {
        let record = self.store.get(key).await.map_err(|error| unreadable(&error))?;
        let is_named = |record: &Record| {
            record.fingerprint.is_some_and(|print| digest_of_request(name.key, print) == name.request)
        };
        record.filter(is_named).ok_or_else(operation_unknown)
    }

    /// The time by the clock of the store, which alone judges a lease.
    async fn now(&self) -> Result<Timestamp, ProblemDetails> {
        let page = self.store.list(&List::default().with_limit(1)).await;
        page.map(|page| page.now).map_err(|error| unreadable(&error))
    }
}

/// What the place of an operation that does not run any more answers: its response, or why there is none.
fn end(record: Record) -> Result<Response<Body>, ProblemDetails> {
    match record.state {
        State::Completed | State::Failed => match record.result {
            Some(StoredResult::Value(bytes)) => {
                let mut response = recording::decode(&bytes).ok_or_else(operation_in_doubt)?;
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                // Before, the place had another answer.
                response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
                Ok(response)
            }
            Some(StoredResult::Tombstone(Tombstone::Exhausted)) => Err(operation_in_doubt()),
            _ => Err(operation_not_stored()),
        },
        State::InFlight if record.on_crash == OnCrash::Rerun => Err(operation_failed()),
        State::Released => Err(operation_failed()),
        // A state of a later version is a doubt, too.
        _ => Err(operation_in_doubt()),
    }
}

fn unreadable(error: &StoreError) -> ProblemDetails {
    match error.kind() {
        StoreErrorKind::CorruptRecord => operation_in_doubt(),
        StoreErrorKind::WrongKeys => misconfigured(),
        _ => operation_unreadable(),
    }
}

/// The name of an operation in a request for its place.
struct Name<'h> {
    key: &'h str,
    request: &'h str,
}

impl<'h> Name<'h> {
    fn of(head: &'h Parts) -> Option<Self> {
        let name = head.uri.path().rsplit('/').next()?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_name = name.len() == OF_KEY + OF_REQUEST && name.bytes().all(is_digit);
        let (key, request) = name.split_at_checked(OF_KEY)?;
        is_name.then_some(Self { key, request })
    }
}
