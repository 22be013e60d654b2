//! The handler of a guarded request: its task, the record of its response, and what the client gets.
//!
//! Owns how an attempt ends. Knows no framework: a handler is a future.

use std::fmt;
use std::sync::Arc;

use http::{Method, Request, Response};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tracing::{Instrument as _, Span};

use super::body::{Body, BoxError};
use super::config::Config;
use super::errors::{no_runtime, not_committed, refusal};
use super::long_operation::LongOperation;
use super::recording;
use super::report::{self, Outcome};
use super::running::Counted;
use super::serving::{Record, Served, serve, serve_end};
use idem_core::Store;
use idem_core::protocol::{ResultFormat, StoredResult, Tombstone, Verdict};
use idem_runtime::problem::{Problem, ProblemDetails};
use idem_runtime::{Attempt, Error, Interrupted, Replayed};

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
    operation: Option<LongOperation>,
    span: Span,
}

impl<St: Store> Run<St> {
    pub(super) fn new(
        config: Arc<Config<St>>,
        unstarted: Unstarted<St>,
        place: Counted,
        request: &Request<Body>,
    ) -> Self {
        let operation = config.operations.as_ref().and_then(|_| request.extensions().get().cloned());
        Self { unstarted, place, config, method: request.method().clone(), operation, span: Span::none() }
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
        let Self { unstarted, place, config, method, operation, span } = self;
        let Ok(runtime) = Handle::try_current() else { return Ok(config.refuse(&no_runtime())) };
        let (client, accepted) = oneshot::channel();
        let acceptance = operation.map(|operation| (operation, client));
        let work =
            work(config.clone(), unstarted, place, method, acceptance, handler).instrument(span.clone());
        // Boxed, because tokio would move the whole future several times.
        let task = runtime.spawn(Box::pin(work));
        let _end = EndOfClient::of(&config, &task);
        if let Ok(response) = accepted.await {
            runtime.spawn(report_end(config, task, span));
            return Ok(response);
        }
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
        let Self { unstarted, place, config, method, operation, span } = self;
        let (client, accepted) = oneshot::channel();
        let acceptance = operation.map(|operation| (operation, client));
        let work =
            work(config.clone(), unstarted, place, method, acceptance, handler).instrument(span.clone());
        let task = tokio::task::spawn_local(work);
        let _end = EndOfClient::of(&config, &task);
        if let Ok(response) = accepted.await {
            tokio::task::spawn_local(report_end(config, task, span));
            return Ok(response);
        }
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
    acceptance: Option<(LongOperation, oneshot::Sender<Response<Body>>)>,
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
        let response = handler.await?;
        let accepted =
            acceptance.and_then(|(operation, client)| Some((operation.work(response.status())?, client)));
        match accepted {
            Some((work, client)) => {
                // The client may have gone away.
                let _ = client.send(response.map(Body::new));
                Ok(serve_end(settings, &method, work.await).await)
            }
            None => Ok(serve(settings, &method, response).await),
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
        Record::Whole(bytes, _) if limit.is_none_or(|limit| bytes.len() <= limit) => {
            StoredResult::Value(bytes.clone())
        }
        Record::Whole(..) | Record::Tombstone if is_in_transaction => {
            attempt.fail(None).await;
            return Err(Failed::TooLarge);
        }
        Record::Whole(..) | Record::Tombstone => StoredResult::Tombstone(Tombstone::TooLarge),
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
    // As a terminal error in a transaction: it is recorded, and its writes are undone.
    let is_undone = is_in_transaction && matches!(served.record, Record::Whole(_, true));
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
            recording::replay(bytes).ok_or_else(|| "it is not a recorded response".to_owned())
        }
        Some(other) => Err(format!("expected {}, found {other}", ResultFormat::Response)),
    })?;
    response.extensions_mut().insert(replay.outcome());
    Ok(response)
}

/// Reports how a long operation ended, whose client got its response before.
async fn report_end<St: Store, E>(config: Arc<Config<St>>, task: JoinHandle<Ended<E>>, span: Span) {
    let ended = task.await;
    span.in_scope(|| drop(answer_of(&config, ended)));
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
        Record::Whole(..) | Record::Tombstone => Outcome::Handled,
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
