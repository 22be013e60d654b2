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
use crate::protocol::Fingerprint;
use crate::store::Store;

pub use crate::engine::{Codec as ResultCodec, Operation, Return, Site, Terminal, Values};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use crate::key::missing::OptionalKey;
pub use crate::key::{KeyBuilder, KeyPart};
pub use crate::protocol::OnCrash;

/// How the results of a function are kept; made by [`codec`].
#[derive(Debug)]
pub struct Codec<R, C> {
    codec: C,
    returns: PhantomData<fn() -> R>,
}

/// Only values are kept. The one place where the return type is bound.
#[must_use]
pub const fn codec<R: Return>() -> Codec<R, Values> {
    Codec { codec: Values, returns: PhantomData }
}

impl<R: Return> Codec<R, Values> {
    /// Errors for which `is_terminal` holds are kept too.
    pub fn terminal<F>(self, is_terminal: F) -> Codec<R, Terminal<F>>
    where
        F: Fn(&R::Error) -> bool,
        R::Error: Serialize + DeserializeOwned,
    {
        Codec { codec: Terminal(is_terminal), returns: PhantomData }
    }
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
pub async fn run<R, C, S, B>(
    codec: Codec<R, C>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&mut Option<B>>,
) -> R
where
    R: Return,
    C: ResultCodec<R::Value, R::Error>,
    S: Store,
    B: Future<Output = R>,
{
    if key.is_plain() {
        return engine::plainly(engine::polled(body)).await;
    }
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    R::from_result(engine::run(call, codec.codec, body).await)
}

/// As [`run`], in a task of its own that outlives the caller.
pub async fn run_detached<R, C, S, B>(
    codec: Codec<R, C>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: B,
) -> R
where
    R: Return,
    R::Value: Send + 'static,
    R::Error: Send + 'static,
    C: ResultCodec<R::Value, R::Error> + Send + 'static,
    S: Store,
    B: Future<Output = R> + Send + 'static,
{
    let plain = key.is_plain();
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    let call = engine::run_detached(call, plain, codec.codec, body);
    R::from_result(if plain { engine::plainly(call).await } else { call.await })
}
