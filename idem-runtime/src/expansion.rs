//! The functions that generated code calls. Not a public interface: it changes with the macro, and both are
//! pinned to the same version.
//!
//! Owns the small traits that keep generated code short and give rustc our messages.

pub(crate) mod missing;

use std::ops::Deref;
use std::pin::Pin;
use std::sync::OnceLock;

use tokio::sync::OnceCell;

use crate::engine::{self, Call, InTransaction};
use crate::error::Error;
use crate::store::MemoryStore;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{RecordKey, Store};

pub use crate::engine::{Codec, Operation, Policy, Recordable, RetryAfter, Site, codec};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use idem_core::protocol::OnCrash;
pub use idem_core::{AnyPart, KeyBuilder, KeyPart};
pub use missing::{CallKey, OptionalKey};

/// Type-level paths from an argument to a store.
pub mod via {
    /// The store itself.
    #[derive(Debug)]
    pub struct Itself;
    /// Never used. It gives every type a second impl of `AsStore`, so that rustc does not assume that the
    /// first impl is the only one.
    #[derive(Debug)]
    pub struct Nothing;
    /// A bound that never holds.
    pub trait Never {
        /// Never called.
        fn never(&self) -> &crate::store::MemoryStore;
    }
    /// One `Deref`, then the path `M`.
    #[derive(Debug)]
    pub struct Pointer<M>(M);
    /// A cell that is set once, then the path `M`.
    #[derive(Debug)]
    pub struct Cell<M>(M);
}

/// A store, or a value that derefs to a store at any depth, such as a reference, an `Arc`, a `LazyLock`, a
/// guard or a newtype. It may also be a cell that is set once: `std::sync::OnceLock` or
/// `tokio::sync::OnceCell`.
#[diagnostic::on_unimplemented(
    message = "expected a store, found `{Self}`",
    label = "this must be a `Store`, or deref to one, as references, `Arc`, `Box` and `LazyLock` do, or a `OnceLock` of one"
)]
pub trait AsStore<Via> {
    /// The store.
    type Store: Store;
    /// The store.
    fn as_store(&self) -> &Self::Store;
}

#[diagnostic::do_not_recommend]
impl<S: Store> AsStore<via::Itself> for S {
    type Store = S;

    fn as_store(&self) -> &S {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<S: via::Never + ?Sized> AsStore<via::Nothing> for S {
    type Store = MemoryStore;

    fn as_store(&self) -> &MemoryStore {
        self.never()
    }
}

#[diagnostic::do_not_recommend]
impl<M, P: Deref<Target: AsStore<M>> + ?Sized> AsStore<via::Pointer<M>> for P {
    type Store = <P::Target as AsStore<M>>::Store;

    fn as_store(&self) -> &Self::Store {
        (**self).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceLock<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> &Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

#[diagnostic::do_not_recommend]
impl<M, C: AsStore<M>> AsStore<via::Cell<M>> for OnceCell<C> {
    type Store = C::Store;

    #[expect(clippy::expect_used, reason = "as documented: nothing has begun")]
    fn as_store(&self) -> &Self::Store {
        self.get().expect(NOT_SET).as_store()
    }
}

/// A panic is safe here, because no body runs before its store is set.
const NOT_SET: &str = "the cell that is named as `store` must be set before the first call";

/// A clone of the store that `store` is or points to.
///
/// # Panics
///
/// If the store is in a cell that is not set.
pub fn store<M, S: AsStore<M> + ?Sized>(store: &S) -> S::Store {
    store.as_store().clone()
}

/// The return type of the function that the attribute's option `key_fn` makes.
pub type KeyOfCall = Result<RecordKey, Error>;

/// The name of the record that one call would have; the call is not made.
///
/// # Errors
///
/// Why the call would have no record.
#[allow(clippy::needless_pass_by_value, reason = "generated code gives what it made")]
pub fn key_of_call(operation: Operation, key: KeyBuilder) -> KeyOfCall {
    operation.record_of(key.finish()).map(|(key, _)| key)
}

/// Makes one call of an annotated function. The generated code pins `body`. The engine drops `body` as soon
/// as the body has ended, the lease is lost or the timeout is over. Everything except the body is boxed, so
/// that the function's future is hardly larger than that of its body.
pub fn run<'b, R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    let call = Call::new(operation, store, key.finish());
    // Written directly into the box, because `Box::pin` would make the future elsewhere and move it.
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, engine::run(call, codec, body)))
}

/// As [`run`], for annotated functions that run their body unguarded if the key is missing. It is separate
/// from `run`, so that all other annotated functions compile only one way to run the body.
pub fn run_or_unguarded<'b, R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: CallKey,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    Box::pin(async move {
        if key.unguarded {
            engine::without_key(&operation, &codec, engine::surroundings().observer, body).await
        } else {
            run(codec, operation, store, key.key, body).await
        }
    })
}

/// As [`store`], for a store that records in the caller's transaction.
pub fn transaction_store<M, S>(store: &S) -> <S::Store as TransactionStore>::Itself
where
    S: AsStore<M> + ?Sized,
    S::Store: TransactionStore,
{
    store.as_store().clone().itself()
}

/// Begins a call in the transaction that `carrier` gives access to.
///
/// # Errors
///
/// What the annotated function returns if its body must not run, such as a recorded result.
pub async fn enter<'t, R, T, E, S, C, P, V>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    carrier: &'t mut P,
) -> Result<InTransaction<'t, R, T, E, S, C, P>, R>
where
    S: RecordsIn<C>,
    P: Carries<S, V, Connection = C>,
{
    let key = key.into();
    let call = (!key.unguarded).then(|| Call::new(operation, store, key.key.finish()));
    Box::pin(engine::enter_transaction(call, codec, carrier)).await
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

/// Checks that an argument can go into a detached body, so that rustc reports an error at the argument's
/// type.
pub const fn detachable<T: Detachable + ?Sized>() {}

/// As [`run`], in a separate task that outlives the caller.
pub async fn run_detached<R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    body: B,
) -> R
where
    R: Send + 'static,
    T: 'static,
    E: 'static,
    S: Store,
    B: Future<Output = R> + Send + 'static,
{
    let key = key.into();
    if key.unguarded {
        engine::run_detached_without_key(operation, codec, body).await
    } else {
        let call = Call::new(operation, store, key.key.finish());
        engine::run_detached(call, codec, body).await
    }
}
