//! What generated code calls. Not a public interface: it changes with the macro, and both are
//! pinned to the same version.
//!
//! Owns the small traits that let generated code stay short and rustc's messages be ours.

mod recovering;

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{
    self, Call, Codec as ResultCodec, Ended, EnteredTransaction, Failure, Running as EngineRunning, Unbound,
    Within, from_bytes, to_stored,
};
use crate::error::Error;
use crate::protocol::{Fingerprint, StoredResult, Verdict};
use crate::store::transaction::{Carries, TransactionStore};
use crate::store::{MemoryStore, Store};

pub use crate::engine::{Operation, Recordable, Site};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use crate::key::missing::OptionalKey;
pub use crate::key::{KeyBuilder, KeyPart};
pub use crate::protocol::OnCrash;
pub use recovering::{Recovering, recovering};

/// How the results of a function are kept.
///
/// It holds what the bounds on the return type promise, as functions. So they stand in one place, where
/// the codec is made, and nothing that takes it asks again for what a type does not keep.
#[derive(Debug)]
pub struct Codec<R, T, E, F = ()> {
    into_result: fn(R) -> Result<T, E>,
    from_result: fn(Result<T, E>) -> R,
    error: fn(Error) -> E,
    value: Format<T>,
    terminal: Option<Terminal<E, F>>,
}

#[derive(Debug)]
struct Terminal<E, F> {
    function: F,
    call: fn(&F, &E) -> bool,
    error: Format<E>,
}

#[derive(Debug)]
struct Format<T> {
    encode: fn(&T, usize) -> StoredResult,
    decode: fn(&[u8]) -> Option<T>,
}

impl<T: Serialize + DeserializeOwned> Format<T> {
    const fn json() -> Self {
        Self { encode: to_stored, decode: from_bytes }
    }
}

/// Only values are kept.
#[must_use]
pub fn codec<R: Recordable>() -> Codec<R, R::Value, R::Error> {
    Codec {
        into_result: R::into_result,
        from_result: R::from_result,
        error: From::from,
        value: Format::json(),
        terminal: None,
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
        let Self { into_result, from_result, error, value, terminal: _ } = self;
        let call = |function: &F, error: &E| function(error);
        Codec {
            into_result,
            from_result,
            error,
            value,
            terminal: Some(Terminal { function, call, error: Format::json() }),
        }
    }
}

impl<R, T, E, F> ResultCodec<T, Failure<E>> for Codec<R, T, E, F> {
    fn encode(&self, result: &Result<T, Failure<E>>, max_bytes: usize) -> Option<(Verdict, StoredResult)> {
        match (result, &self.terminal) {
            (Ok(value), _) => Some((Verdict::Completed, (self.value.encode)(value, max_bytes))),
            (Err(Failure::Body(error)), Some(terminal)) if (terminal.call)(&terminal.function, error) => {
                Some((Verdict::Failed, (terminal.error.encode)(error, max_bytes)))
            }
            (Err(_), _) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Option<Result<T, Failure<E>>> {
        match verdict {
            Verdict::Completed => (self.value.decode)(bytes).map(Ok),
            Verdict::Failed => {
                let error = (self.terminal.as_ref()?.error.decode)(bytes)?;
                Some(Err(Failure::Body(error)))
            }
        }
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
    /// Through one pointer, and so on.
    #[derive(Debug)]
    pub struct Pointer<M>(M);
}

/// A store, or a reference, `Arc`, `Rc` or `Box` of one, however deep.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an idempotency store",
    label = "this must be a `Store`, or a reference, `Arc` or `Box` of one"
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

macro_rules! pointers {
    ($($ty:ty)*) => {$(
        impl<M, T: AsStore<M> + ?Sized> AsStore<via::Pointer<M>> for $ty {
            type Store = T::Store;

            fn as_store(&self) -> T::Store {
                (**self).as_store()
            }
        }
    )*};
}

pointers!(&T &mut T Arc<T> Rc<T> Box<T>);

/// A clone of the store that `store` is or points to.
pub fn store<M, S: AsStore<M> + ?Sized>(store: &S) -> S::Store {
    store.as_store()
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
        let result = engine::run(call, &mut codec, body).await;
        codec.own()(result)
    })
}

/// As [`run`], where a missing key means that the body runs as if it were not annotated. A function of
/// its own, so that only who may miss a key has a second way through the body compiled.
pub fn run_or_plainly<'b, R, T, E, F, S, B>(
    codec: Codec<R, T, E, F>,
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
    Box::pin(async move {
        if key.is_plain() {
            engine::plainly(engine::polled(body)).await
        } else {
            run(codec, operation, store, key, fingerprint, body).await
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
pub struct InTransaction<'t, R, T, E, F, S: TransactionStore, P> {
    codec: Codec<R, T, E, F>,
    within: Within<'t, S, P>,
}

/// What polls the body of such a call.
pub struct Running<R, T, E> {
    running: EngineRunning,
    into_result: fn(R) -> Result<T, E>,
}

/// How such a body ended.
pub struct BodyEnded<T, E>(Ended<Result<T, Failure<E>>>);

/// What the function returns if its body does not run, or what there is to run it in.
type Begun<'t, R, T, E, F, S, P> = Result<InTransaction<'t, R, T, E, F, S, P>, R>;

/// Begins a call in the transaction that `carrier` carries, or gives its result.
///
/// # Errors
///
/// What the function returns without running its body.
pub async fn enter<'t, R, T, E, F, S, P, V>(
    codec: Codec<R, T, E, F>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    carrier: &'t mut P,
) -> Begun<'t, R, T, E, F, S, P>
where
    S: TransactionStore,
    P: Carries<S::Connection, V>,
{
    let plain = key.is_plain();
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    match Box::pin(engine::enter_transaction(call, plain, &codec, carrier)).await {
        EnteredTransaction::Run(within) => Ok(InTransaction { codec, within }),
        EnteredTransaction::Done(result) => Err(codec.own()(result)),
    }
}

impl<R, T, E, F, S: TransactionStore, P> InTransaction<'_, R, T, E, F, S, P> {
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
            own(self.within.leave(&self.codec, running.running, ended.0).await)
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
    key: KeyBuilder,
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
    let plain = key.is_plain();
    let own = codec.own();
    let into_result = codec.into_result;
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    let body = body.map(move |returned| Unbound(into_result(returned)));
    let call = engine::run_detached(call, plain, codec, body);
    own(if plain { engine::plainly(call).await } else { call.await })
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
