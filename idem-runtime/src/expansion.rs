//! The functions that generated code calls. Not a public interface: it changes with the macro, and both are pinned to
//! the same version.
//!
//! Owns the small traits that keep generated code short and give rustc our messages.

mod as_store;
pub(crate) mod missing;
mod recovering;

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};

use crate::engine::{
    self, Call, Ended, EnteredTransaction, Failure, ResultRules, Running as EngineRunning, Within,
};
use crate::error::Error;
use idem_core::protocol::Fingerprint;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{RecordKey, Store};

pub use crate::engine::{Operation, Recordable, Site};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use as_store::{AsStore, store, via};
pub use idem_core::protocol::OnCrash;
pub use idem_core::{AnyPart, KeyBuilder, KeyPart};

/// The return type of the function of a `key_fn`.
pub type KeyOfCall = Result<RecordKey, Error>;
pub use missing::{CallKey, OptionalKey};
pub use recovering::{Recovering, recovering};

/// How the results of a function are kept.
#[derive(Debug)]
pub struct Codec<R, T, E, F = ()> {
    into_result: fn(R) -> Result<T, E>,
    from_result: fn(Result<T, E>) -> R,
    error: fn(Error) -> E,
    rules: ResultRules<T, E, F>,
}

/// A codec that keeps only values.
#[must_use]
pub fn codec<R: Recordable>() -> Codec<R, R::Value, R::Error> {
    Codec {
        into_result: R::into_result,
        from_result: R::from_result,
        error: From::from,
        rules: ResultRules::values(),
    }
}

impl<R, T, E> Codec<R, T, E> {
    /// The same codec, and errors for which `function` returns `true` are kept too.
    pub fn terminal<F>(self, function: F) -> Codec<R, T, E, F>
    where
        F: Fn(&E) -> bool,
        E: Serialize + for<'de> Deserialize<'de>,
    {
        let Self { into_result, from_result, error, rules } = self;
        Codec { into_result, from_result, error, rules: rules.terminal(function) }
    }
}

impl<R, T, E, F> Codec<R, T, E, F> {
    /// The same codec, and values for which `keeps` returns `false` are returned and not recorded.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { rules: self.rules.record_if(keeps), ..self }
    }

    /// The same codec, with a function that returns how long the key is not due after an error, given the number of the
    /// attempt.
    pub fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { rules: self.rules.retry_after(retry_after), ..self }
    }
}

/// The name of the record that one call would have; the call is not made.
///
/// # Errors
///
/// Why the call would have no record.
pub fn key_of_call(operation: Operation, key: KeyBuilder) -> KeyOfCall {
    operation.record_of(key.finish())
}

/// Makes one call of an annotated function. The generated code pins `body`; it is dropped as soon as it is done or its
/// lease is lost. Everything except the body is boxed, so that the function's future is hardly larger than that of its
/// body.
pub fn run<'b, R, T, E, F, S, B>(
    mut codec: Codec<R, T, E, F>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, F, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish()).prepare();
    // Written to its place, because `Box::pin` would make the future elsewhere and move it.
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, async move {
        let body = pin!(Some(Lent { body, into_result: codec.into_result }));
        let result = engine::run(call, &mut codec.rules, body).await;
        codec.own()(result)
    }))
}

/// As [`run`], for functions that run their body unguarded if the key is missing. A separate function, so that only
/// these functions compile two ways to run the body.
pub fn run_or_unguarded<'b, R, T, E, F, S, B>(
    codec: Codec<R, T, E, F>,
    operation: Operation,
    store: S,
    key: CallKey,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, F, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    Box::pin(async move {
        if key.is_unguarded() {
            let own = codec.own();
            let body = pin!(Some(Lent { body, into_result: codec.into_result }));
            let running = engine::without_key(&operation, engine::Observation::current(), body);
            own(engine::unguarded(running).await)
        } else {
            run(codec, operation, store, key.into_builder(), fingerprint, body).await
        }
    })
}

/// As [`store`], for a store that records in the caller's transaction.
pub fn transaction_store<M, S>(store: &S) -> <S::Store as TransactionStore>::Itself
where
    S: AsStore<M> + ?Sized,
    S::Store: TransactionStore,
{
    store.as_store().itself()
}

/// One call of an annotated function in a transaction that `P` gives access to.
pub struct InTransaction<'t, R, T, E, F, S: RecordsIn<C>, C, P> {
    codec: Codec<R, T, E, F>,
    within: Within<'t, S, C, P>,
}

/// Polls the body of such a call.
pub struct Running<R, T, E> {
    running: EngineRunning,
    into_result: fn(R) -> Result<T, E>,
}

/// How such a body ended.
pub struct BodyEnded<T, E>(Ended<Result<T, E>>);

/// The call in the transaction, or what the function returns if its body does not run.
type Begun<'t, R, T, E, F, S, C, P> = Result<InTransaction<'t, R, T, E, F, S, C, P>, R>;

/// Begins a call in the transaction that `carrier` gives access to, or returns its result.
///
/// # Errors
///
/// What the function returns without running its body.
pub async fn enter<'t, R, T, E, F, S, C, P, V>(
    codec: Codec<R, T, E, F>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    carrier: &'t mut P,
) -> Begun<'t, R, T, E, F, S, C, P>
where
    S: RecordsIn<C>,
    P: Carries<S, V, Connection = C>,
{
    let key = key.into();
    let unguarded = key.is_unguarded();
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    match Box::pin(engine::enter_transaction(call, unguarded, &codec.rules, carrier)).await {
        EnteredTransaction::Run(within) => Ok(InTransaction { codec, within }),
        EnteredTransaction::Done(result) => Err(codec.own()(result)),
    }
}

impl<R, T, E, F, S: RecordsIn<C>, C, P> InTransaction<'_, R, T, E, F, S, C, P> {
    /// Starts the body: returns what polls it.
    pub fn running(&self) -> Running<R, T, E> {
        Running { running: self.within.running(), into_result: self.codec.into_result }
    }

    /// The value from which the body gets its transaction.
    pub fn carrier(&mut self) -> &mut P {
        self.within.carrier()
    }

    /// Records the body's result, or undoes what the body wrote.
    pub fn leave(
        self,
        running: Running<R, T, E>,
        ended: BodyEnded<T, E>,
    ) -> Pin<Box<impl Future<Output = R>>> {
        Box::pin(async move {
            let own = self.codec.own();
            own(self.within.leave(&self.codec.rules, running.running, ended.0).await)
        })
    }
}

impl<R, T, E> Running<R, T, E> {
    /// Polls the body to its end.
    pub async fn drive<B: Future<Output = R>>(&self, body: Pin<&mut Option<B>>) -> BodyEnded<T, E> {
        let lent = pin!(Some(Lent { body, into_result: self.into_result }));
        BodyEnded(self.running.drive(lent).await)
    }
}

/// An argument that may go into a detached body.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot go into a detached body",
    label = "this is not `Send`",
    note = "a detached body may run on another thread: take an argument that is `Send`, such as an `Arc` for an `Rc`"
)]
pub trait Detachable {}

#[diagnostic::do_not_recommend]
impl<T: Send + ?Sized> Detachable for T {}

/// Checks that an argument can go into a detached body, so that rustc reports an error at the argument's type.
pub const fn detachable<T: Detachable + ?Sized>() {}

/// As [`run`], in a separate task that outlives the caller.
pub async fn run_detached<R, T, E, F, S, B>(
    codec: Codec<R, T, E, F>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: B,
) -> R
where
    R: 'static,
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
    S: Store,
    B: Future<Output = R> + Send + 'static,
{
    let key = key.into();
    let unguarded = key.is_unguarded();
    let own = codec.own();
    let into_result = codec.into_result;
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    let body = body.map(into_result);
    let call = engine::run_detached(call, unguarded, codec.rules, body);
    own(if unguarded { engine::unguarded(call).await } else { call.await })
}

impl<R, T, E, F> Codec<R, T, E, F> {
    /// Converts a result into the function's own return type.
    fn own(&self) -> impl FnOnce(Result<T, Failure<E>>) -> R + use<R, T, E, F> {
        let (from_result, own) = (self.from_result, self.error);
        move |result| {
            from_result(result.map_err(|failure| match failure {
                Failure::Idem(error) => own(error),
                Failure::Body(error) => error,
            }))
        }
    }
}

/// A body that is pinned elsewhere, with its result converted.
struct Lent<'b, B, R, T, E> {
    body: Pin<&'b mut Option<B>>,
    into_result: fn(R) -> Result<T, E>,
}

impl<R, T, E, B: Future<Output = R>> Future for Lent<'_, B, R, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(body) = self.body.as_mut().as_pin_mut() else { return Poll::Pending };
        body.poll(cx).map(self.into_result)
    }
}

impl<B, R, T, E> Drop for Lent<'_, B, R, T, E> {
    fn drop(&mut self) {
        self.body.set(None);
    }
}
