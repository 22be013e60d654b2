//! What generated code calls. Not a public interface: it changes with the macro, and both are
//! pinned to the same version.
//!
//! Owns the small traits that let generated code stay short and rustc's messages be ours.

pub(crate) mod missing;
mod recovering;

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::engine::{
    self, Call, Ended, EnteredTransaction, Failure, Rules, Running as EngineRunning, Unbound, Within,
};
use crate::error::Error;
use crate::store::MemoryStore;
use idem_core::protocol::Fingerprint;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{RecordKey, Store};

pub use crate::engine::{Operation, Recordable, Site};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use idem_core::protocol::OnCrash;
pub use idem_core::{KeyBuilder, KeyPart};

/// What the function of a `key_fn` gives.
pub type KeyOfCall = Result<RecordKey, Error>;
pub use missing::{CallKey, OptionalKey};
pub use recovering::{Recovering, recovering};

/// How the results of a function are kept.
#[derive(Debug)]
pub struct Codec<R, T, E, F = ()> {
    into_result: fn(R) -> Result<T, E>,
    from_result: fn(Result<T, E>) -> R,
    error: fn(Error) -> E,
    rules: Rules<T, E, F>,
}

/// Only values are kept.
#[must_use]
pub fn codec<R: Recordable>() -> Codec<R, R::Value, R::Error> {
    Codec {
        into_result: R::into_result,
        from_result: R::from_result,
        error: From::from,
        rules: Rules::values(),
    }
}

/// As [`codec`], for a type that by its name is a response: in words of its own.
#[must_use]
pub fn response<R: RecordableResponse>() -> Codec<R, R::Value, R::Error> {
    R::codec()
}

/// As [`Recordable`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds a response, and a response is not recorded",
    label = "annotate the function that this handler calls, or use the HTTP layer",
    note = "what is recorded is a `Result<T, E>` with `T: Serialize + DeserializeOwned` and `E: From<idem::Error>`"
)]
pub trait RecordableResponse: Sized {
    /// The value that is recorded.
    type Value;
    /// The error that idem's own error becomes.
    type Error;
    /// As [`codec`] gives it.
    fn codec() -> Codec<Self, Self::Value, Self::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned, E: From<Error>> RecordableResponse for Result<T, E> {
    type Value = T;
    type Error = E;

    fn codec() -> Codec<Self, T, E> {
        codec()
    }
}

impl<R, T, E> Codec<R, T, E> {
    /// Errors for which `function` holds are kept too.
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
    /// Values for which `keeps` does not hold are returned and not recorded.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { rules: self.rules.record_if(keeps), ..self }
    }

    /// When a key is due again after this error of this attempt.
    pub fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { rules: self.rules.retry_after(retry_after), ..self }
    }

    /// What is asked of a recorded value that does not decode.
    pub fn upgrade(self, upgrade: fn(&[u8]) -> Option<T>) -> Self {
        Self { rules: self.rules.upgrade(upgrade), ..self }
    }
}

/// Ways to hand over a store.
pub mod via {
    /// The store itself.
    #[derive(Debug)]
    pub struct Itself;
    /// Never. That there are two rules for every type keeps rustc from taking one for the only way.
    #[derive(Debug)]
    pub struct Nothing;
    /// A bound that never holds.
    pub trait Never {}
    /// Through one `Deref`, and so on.
    #[derive(Debug)]
    pub struct Pointer<M>(M);
    /// Through a cell that is set once.
    #[derive(Debug)]
    pub struct Cell<M>(M);
}

/// A store, or what derefs to one: a reference, an `Arc`, a `LazyLock`, a guard, a newtype, however deep; or a cell that
/// is set once, `std::sync::OnceLock` or `tokio::sync::OnceCell`.
#[diagnostic::on_unimplemented(
    message = "expected a store, found `{Self}`",
    label = "this must be a `Store`, or deref to one, as references, `Arc`, `Box` and `LazyLock` do, or a `OnceLock` of one"
)]
pub trait AsStore<Via> {
    /// The store.
    type Store: Store;
    /// A clone of the store.
    fn as_store(&self) -> Self::Store;
}

#[diagnostic::do_not_recommend]
impl<S: Store> AsStore<via::Itself> for S {
    type Store = S;

    fn as_store(&self) -> S {
        self.clone()
    }
}

#[diagnostic::do_not_recommend]
impl<S: via::Never + ?Sized> AsStore<via::Nothing> for S {
    type Store = MemoryStore;

    fn as_store(&self) -> MemoryStore {
        MemoryStore::new()
    }
}

#[diagnostic::do_not_recommend]
impl<M, P: Deref<Target: AsStore<M>> + ?Sized> AsStore<via::Pointer<M>> for P {
    type Store = <P::Target as AsStore<M>>::Store;

    fn as_store(&self) -> Self::Store {
        (**self).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceLock<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceCell<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

/// Nothing is lost: no body runs before its store is there.
const NOT_SET: &str = "the cell that is named as `store` must be set before the first call";

/// A clone of the store that `store` is or points to.
///
/// # Panics
///
/// If it is in a cell that is not set.
pub fn store<M, S: AsStore<M> + ?Sized>(store: &S) -> S::Store {
    store.as_store()
}

/// The name of the record of one call, which is not made.
///
/// # Errors
///
/// Why the call would have no record.
pub fn key_of_call(operation: Operation, key: KeyBuilder) -> KeyOfCall {
    operation.record_of(key.finish())
}

/// Makes one call of an annotated function. `body` is pinned where it stands, and dropped there as
/// soon as it is done or its lease is lost. What is not the body is in a box, so that the function's
/// future is hardly larger than its body's.
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
    Box::pin(async move {
        let body = pin!(Some(Lent { body, into_result: codec.into_result }));
        let result = engine::run(call, &mut codec.rules, body).await;
        codec.own()(result)
    })
}

/// As [`run`], where a missing key means that the body runs as if it were not annotated. A function of
/// its own, so that only who may miss a key has a second way through the body compiled.
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
            engine::unguarded(operation.strict_name(), engine::polled(body)).await
        } else {
            run(codec, operation, store, key.into_builder(), fingerprint, body).await
        }
    })
}

/// As [`store`], of one that records in a transaction of the caller's.
pub fn transaction_store<M, S>(store: &S) -> <S::Store as TransactionStore>::Itself
where
    S: AsStore<M> + ?Sized,
    S::Store: TransactionStore,
{
    store.as_store().itself()
}

/// One call of an annotated function in a transaction that `P` carries.
pub struct InTransaction<'t, R, T, E, F, S: RecordsIn<C>, C, P> {
    codec: Codec<R, T, E, F>,
    within: Within<'t, S, C, P>,
}

/// What polls the body of such a call.
pub struct Running<R, T, E> {
    running: EngineRunning,
    into_result: fn(R) -> Result<T, E>,
}

/// How such a body ended.
pub struct BodyEnded<T, E>(Ended<Result<T, Failure<E>>>);

/// What the function returns if its body does not run, or what there is to run it in.
type Begun<'t, R, T, E, F, S, C, P> = Result<InTransaction<'t, R, T, E, F, S, C, P>, R>;

/// Begins a call in the transaction that `carrier` carries, or gives its result.
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
    /// What polls the body.
    pub fn running(&self) -> Running<R, T, E> {
        Running { running: self.within.running(), into_result: self.codec.into_result }
    }

    /// What carries the transaction, for the body.
    pub fn carrier(&mut self) -> &mut P {
        self.within.carrier()
    }

    /// Records what the body came to.
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
        let lent = pin!(Some(
            Lent { body, into_result: self.into_result }.map(|returned| returned.0.map_err(Failure::Body))
        ));
        BodyEnded(self.running.drive(lent).await)
    }
}

/// What a detached body may take with it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot go into a detached body",
    label = "this is not `Send`",
    note = "a detached body may run on another thread: take an argument that is `Send`, such as an `Arc` for an `Rc`"
)]
pub trait Detachable {}

#[diagnostic::do_not_recommend]
impl<T: Send + ?Sized> Detachable for T {}

/// That an argument can go into a detached body, said where its type stands.
pub const fn detachable<T: Detachable + ?Sized>() {}

/// As [`run`], in a task of its own that outlives the caller.
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
    let strict_steps = operation.strict_name();
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    let body = body.map(move |returned| Unbound(into_result(returned)));
    let call = engine::run_detached(call, unguarded, codec.rules, body);
    own(if unguarded { engine::unguarded(strict_steps, call).await } else { call.await })
}

impl<R, T, E, F> Codec<R, T, E, F> {
    /// What makes the function's own type of a result.
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

/// A body that stands elsewhere.
struct Lent<'b, B, R, T, E> {
    body: Pin<&'b mut Option<B>>,
    into_result: fn(R) -> Result<T, E>,
}

impl<R, T, E, B: Future<Output = R>> Future for Lent<'_, B, R, T, E> {
    type Output = Unbound<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(body) = self.body.as_mut().as_pin_mut() else { return Poll::Pending };
        body.poll(cx).map(|returned| Unbound((self.into_result)(returned)))
    }
}

impl<B, R, T, E> Drop for Lent<'_, B, R, T, E> {
    fn drop(&mut self) {
        self.body.set(None);
    }
}
