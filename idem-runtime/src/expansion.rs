//! The functions that generated code calls. Not a public interface: it changes with the macro, and both are pinned to
//! the same version.
//!
//! Owns the small traits that keep generated code short and give rustc our messages.

mod as_store;
pub(crate) mod missing;

use std::pin::Pin;

use crate::engine::{self, Call, InTransaction};
use crate::error::Error;
use idem_core::protocol::Fingerprint;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{RecordKey, Store};

pub use crate::engine::{Codec, Operation, Policy, Recordable, RetryAfter, Site, codec};
pub use crate::fingerprint::{FingerprintError, fingerprint};
pub use as_store::{AsStore, store, via};
pub use idem_core::protocol::OnCrash;
pub use idem_core::{AnyPart, KeyBuilder, KeyPart};
pub use missing::{CallKey, OptionalKey};

/// The return type of the function of a `key_fn`.
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

/// Makes one call of an annotated function. The generated code pins `body`; it is dropped as soon as it is done or its
/// lease is lost. Everything except the body is boxed, so that the function's future is hardly larger than that of its
/// body.
pub fn run<'b, R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: KeyBuilder,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    let call = Call::new(operation.with_fingerprint(fingerprint), store, key.finish());
    // Written to its place, because `Box::pin` would make the future elsewhere and move it.
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, engine::run(call, codec, body)))
}

/// As [`run`], for functions that run their body unguarded if the key is missing. A separate function, so that only
/// these functions compile two ways to run the body.
pub fn run_or_unguarded<'b, R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: CallKey,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    body: Pin<&'b mut Option<B>>,
) -> Pin<Box<impl Future<Output = R> + use<'b, R, T, E, S, B>>>
where
    S: Store,
    B: Future<Output = R>,
{
    Box::pin(async move {
        if key.unguarded {
            engine::without_key(&operation, &codec, engine::Observation::current(), body).await
        } else {
            run(codec, operation, store, key.key, fingerprint, body).await
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

/// Begins a call in the transaction that `carrier` gives access to, or returns its result.
///
/// # Errors
///
/// What the function returns without running its body.
pub async fn enter<'t, R, T, E, S, C, P, V>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    carrier: &'t mut P,
) -> Result<InTransaction<'t, R, T, E, S, C, P>, R>
where
    S: RecordsIn<C>,
    P: Carries<S, V, Connection = C>,
{
    let key = key.into();
    let call =
        (!key.unguarded).then(|| Call::new(operation.with_fingerprint(fingerprint), store, key.key.finish()));
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

/// Checks that an argument can go into a detached body, so that rustc reports an error at the argument's type.
pub const fn detachable<T: Detachable + ?Sized>() {}

/// As [`run`], in a separate task that outlives the caller.
pub async fn run_detached<R, T, E, S, B>(
    codec: Codec<R, T, E>,
    operation: Operation,
    store: S,
    key: impl Into<CallKey>,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
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
        let call = Call::new(operation.with_fingerprint(fingerprint), store, key.key.finish());
        engine::run_detached(call, codec, body).await
    }
}
