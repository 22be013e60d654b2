//! What generated code calls. Not a public interface: it changes with the macro, and both are
//! pinned to the same version.
//!
//! Owns the small traits that let generated code stay short and rustc's messages be ours.

use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{self, Call};
use crate::protocol::{Fingerprint, StoredResult, Verdict};
use crate::store::Store;

pub use crate::engine::{Codec as ResultCodec, Operation, Return, Site, Terminal, Values};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use crate::key::{KeyBuilder, KeyPart};
pub use crate::protocol::OnCrash;

/// How the results of a function that returns `Self::Return` are kept.
///
/// Generated code gets one of these as an opaque type, so that whoever takes it has nothing left to
/// prove: a bound that does not hold is reported where the codec is made, and nowhere else.
pub trait Keeps: ResultCodec<<Self::Return as Return>::Value, <Self::Return as Return>::Error> {
    /// What the function returns.
    type Return: Return;
}

struct Codec<R, C> {
    codec: C,
    returns: PhantomData<fn() -> R>,
}

impl<R: Return, C: ResultCodec<R::Value, R::Error>> Keeps for Codec<R, C> {
    type Return = R;
}

impl<R, C: ResultCodec<T, E>, T, E> ResultCodec<T, E> for Codec<R, C> {
    fn encode(&self, result: &Result<T, E>, max_bytes: usize) -> Option<(Verdict, StoredResult)> {
        self.codec.encode(result, max_bytes)
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Option<Result<T, E>> {
        self.codec.decode(verdict, bytes)
    }
}

/// Only values are kept. With [`terminal_codec`] the one place where the return type is bound.
#[must_use]
pub const fn codec<R: Return>() -> impl Keeps<Return = R> {
    Codec { codec: Values, returns: PhantomData }
}

/// Errors for which `is_terminal` holds are kept too.
pub const fn terminal_codec<R, F>(is_terminal: F) -> impl Keeps<Return = R>
where
    R: Return,
    R::Error: Serialize + DeserializeOwned,
    F: Fn(&R::Error) -> bool,
{
    Codec { codec: Terminal(is_terminal), returns: PhantomData }
}

/// Ways to hand over a store.
pub mod via {
    /// The store itself.
    #[derive(Debug)]
    pub struct Itself;
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

impl<S: Store> AsStore<via::Itself> for S {
    type Store = S;

    fn as_store(&self) -> S {
        self.clone()
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
/// soon as it is done or its lease is lost.
pub async fn run<K, S, B>(
    codec: K,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&mut Option<B>>,
) -> K::Return
where
    K: Keeps,
    S: Store,
    B: Future<Output = K::Return>,
{
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    Return::from_result(engine::run(call, codec, body).await)
}

/// As [`run`], in a task of its own that outlives the caller.
pub async fn run_detached<K, S, B>(
    codec: K,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: B,
) -> K::Return
where
    K: Keeps + Send + 'static,
    <K::Return as Return>::Value: Send + 'static,
    <K::Return as Return>::Error: Send + 'static,
    S: Store,
    B: Future<Output = K::Return> + Send + 'static,
{
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    Return::from_result(engine::run_detached(call, codec, body).await)
}
