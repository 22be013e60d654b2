//! The handler of a guarded request: its task, the record of its response, and what the client gets.
//!
//! Owns the rules for how an attempt ends. Knows no web framework, because it gets each handler as a future.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Response};
use scopeguard::{ScopeGuard, guard};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::AbortHandle;
use tracing::{Instrument as _, Span};

use super::body::{Body, BoxError};
use super::config::{Config, Recording};
use super::errors::{not_committed, refusal};
use super::long_operation::LongOperation;
use super::recording;
use super::report;
use super::serving::{Record, serve, serve_end};
use idem_core::Store;
use idem_core::protocol::{ResultFormat, StoredResult, Tombstone, Verdict};
use idem_runtime::problem::{Problem, ProblemDetails};
use idem_runtime::{Attempt, Error, Interrupted, Outcome, Replayed};

/// A request whose key is claimed and whose handler must run: see
/// [`IdempotencyLayer::begin`](super::IdempotencyLayer::begin). If a `Run` is dropped before its handler
/// runs, it releases the key as if the request had never come.
///
/// The handler runs in a separate task, within the span of the request. When the client has gone away, a
/// server drops the future of [`spawn`](Self::spawn). The task continues, unless the layer runs handlers in
/// transactions.
#[must_use = "the handler runs by `spawn` or `spawn_local`; dropping this gives the key back"]
pub struct Run<St: Store> {
    // Fields are dropped in the order of their declaration, so the key is released before the permit.
    attempt: ScopeGuard<Attempt<St>, fn(Attempt<St>)>,
    place: OwnedSemaphorePermit,
    config: Arc<Config<St>>,
    method: Method,
    operation: Option<LongOperation>,
    span: Span,
}

impl<St: Store> Run<St> {
    /// Must be called in the span of the request, because the handler's task will run in the current span.
    pub(super) fn new(
        config: Arc<Config<St>>,
        attempt: Attempt<St>,
        place: OwnedSemaphorePermit,
        method: Method,
        operation: Option<LongOperation>,
    ) -> Self {
        let attempt = guard(attempt, Attempt::give_back as fn(_));
        Self { attempt, place, config, method, operation, span: Span::current() }
    }

    /// Runs the handler and records its response. Returns the handler's response, the response that another
    /// attempt has recorded, or a problem. The client gets a problem, for example, if the handler panicked or
    /// took too long.
    ///
    /// # Errors
    ///
    /// The handler's own error. It counts as a crash: see [`Builder::on_crash`](super::Builder::on_crash).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn spawn<F, R, E>(self, handler: F) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<R>, E>> + Send + 'static,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
        E: Send + 'static,
    {
        let (config, span, (client, answer)) = (self.config.clone(), self.span.clone(), oneshot::channel());
        // The future is boxed, because otherwise tokio would move the whole future several times.
        let task = tokio::spawn(Box::pin(self.work(handler, client).instrument(span.clone())));
        answered(&config, span, task.abort_handle(), answer).await
    }

    /// As [`spawn`](Self::spawn), for a handler that is not `Send`, such as a handler of actix-web.
    ///
    /// # Errors
    ///
    /// The handler's own error. It counts as a crash: see [`Builder::on_crash`](super::Builder::on_crash).
    ///
    /// # Panics
    ///
    /// Outside a [`tokio::task::LocalSet`] or a local runtime.
    pub async fn spawn_local<F, R, E>(self, handler: F) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<R>, E>> + 'static,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
        E: 'static,
    {
        let (config, span, (client, answer)) = (self.config.clone(), self.span.clone(), oneshot::channel());
        let work = self.work(handler, client).instrument(span.clone());
        let task = tokio::task::spawn_local(Box::pin(work));
        answered(&config, span, task.abort_handle(), answer).await
    }

    async fn work<F, R, E>(self, handler: F, client: oneshot::Sender<Result<Response<Body>, E>>)
    where
        F: Future<Output = Result<Response<R>, E>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (config, mut client) = (self.config.clone(), Client(Some(client)));
        let ended = AssertUnwindSafe(self.handle(handler, &mut client)).catch_unwind().await;
        client.answer(ended.unwrap_or_else(|_| Ok(config.handler_failed("panicked"))));
    }

    /// Runs the handler and records its response. If the handler accepted a long operation, the client gets
    /// the 202 before the operation ends.
    async fn handle<F, R, E>(self, handler: F, client: &mut Client<E>) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<R>, E>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { attempt, place, config, method, operation, .. } = self;
        let attempt = ScopeGuard::into_inner(attempt);
        let served = async {
            // The permit becomes free when the handler has ended and its response was read, before the
            // response is recorded.
            let _place = place;
            let response = handler.await?.map(Body::new);
            Ok(match operation.and_then(|operation| operation.work(response.status())) {
                Some(work) => {
                    client.answer(Ok(response));
                    serve_end(&config, &method, work.await).await
                }
                None => serve(&config, &method, response).await,
            })
        };
        match attempt.run(served).await {
            Ok((Ok((response, record)), attempt)) => Ok(config.record(attempt, response, record).await),
            Ok((Err(error), attempt)) => {
                attempt.abandon().await;
                report::outcome(&config.scope, "failed");
                Err(error)
            }
            Err(interrupted) => Ok(config.instead(interrupted)),
        }
    }
}

impl<St: Store> fmt::Debug for Run<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("method", &self.method).finish_non_exhaustive()
    }
}

/// The channel to the client of a request; `None` after the answer was sent.
struct Client<E>(Option<oneshot::Sender<Result<Response<Body>, E>>>);

impl<E> Client<E> {
    fn answer(&mut self, answer: Result<Response<Body>, E>) {
        let Some(client) = self.0.take() else { return };
        if let Ok(response) = &answer {
            report::answered(&Span::current(), response.status());
        }
        // The client may have gone away.
        let _ = client.send(answer);
    }
}

/// Waits for the answer of the handler's task.
async fn answered<St, E>(
    config: &Config<St>,
    span: Span,
    task: AbortHandle,
    answer: oneshot::Receiver<Result<Response<Body>, E>>,
) -> Result<Response<Body>, E> {
    // A handler in a transaction ends when its client goes away. Then its writes are rolled back, and its
    // connection returns to the pool.
    let _end = config.transaction.is_some().then(|| guard(task, |task| task.abort()));
    match answer.await {
        Ok(answer) => answer,
        Err(_) => span.in_scope(|| Ok(config.handler_failed("was ended with the server"))),
    }
}

impl<St: Store> Config<St> {
    /// Records the response, and returns what the client gets.
    async fn record(
        &self,
        attempt: Attempt<St>,
        mut response: Response<Body>,
        record: Record,
    ) -> Response<Body> {
        let is_in_transaction = self.transaction.is_some();
        let recorded = match record {
            Record::Whole(bytes, is_failure) => {
                // In a transaction, a failure is recorded like a terminal error, so that the handler's writes
                // are rolled back.
                let is_undone = is_in_transaction && is_failure;
                let verdict = if is_undone { Verdict::Failed } else { Verdict::Completed };
                attempt.record(verdict, StoredResult::Value(bytes)).await.map(Some)
            }
            Record::Without(Recording::Keep | Recording::PassThrough) if is_in_transaction => {
                attempt.fail(None).await;
                return self.handler_failed("has a response too large to record");
            }
            Record::Without(Recording::Keep | Recording::PassThrough) => {
                let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
                attempt.record(Verdict::Completed, tombstone).await.map(Some)
            }
            Record::Without(Recording::Release) => {
                attempt.fail(None).await;
                Ok(None)
            }
            Record::Without(Recording::Crash) => {
                attempt.abandon().await;
                Ok(None)
            }
            Record::Without(Recording::Forget) => attempt.forget().await.map(|()| None),
        };
        match recorded {
            Ok(Some(Outcome::Unrecorded { .. })) if is_in_transaction => self.refuse(&not_committed()),
            Ok(Some(outcome)) => {
                report::outcome(&self.scope, "handled");
                response.extensions_mut().insert(outcome);
                response
            }
            Ok(None) => {
                report::outcome(&self.scope, "released");
                response
            }
            Err(interrupted) => self.instead(interrupted),
        }
    }

    /// What the client gets if its handler took too long or lost its key.
    fn instead(&self, interrupted: Interrupted<St>) -> Response<Body> {
        match interrupted {
            Interrupted::Replay(replay) => self.replayed(&replay),
            Interrupted::Refused(Error::TimedOut { .. }) => self.handler_failed("took too long"),
            Interrupted::Refused(error) => self.refuse(&refusal(&error)),
        }
    }

    pub(super) fn replayed(&self, replay: &Replayed<St>) -> Response<Body> {
        let decoded = replay.decode_with(|_, bytes| match ResultFormat::of(bytes) {
            None | Some(ResultFormat::Response) => {
                recording::replay(bytes).ok_or_else(|| "it is not a recorded response".to_owned())
            }
            Some(other) => Err(format!("expected {}, found {other}", ResultFormat::Response)),
        });
        match decoded {
            Ok(mut response) => {
                report::outcome(&self.scope, "replayed");
                response.extensions_mut().insert(replay.outcome());
                response
            }
            Err(error) => self.refuse(&refusal(&error)),
        }
    }
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
