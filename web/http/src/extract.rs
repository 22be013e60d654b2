//! The call of a handler, its transaction and its long operation, as extractors of axum.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::request::Parts;

use super::long_operation::LongOperation;
use super::transaction::Tx;
use idem_runtime::{Context, Error, context};

/// The call that an axum handler runs in: its key, its attempt, whether an earlier run crashed, and keys for
/// the services that the handler calls. [`context`](idem_runtime::context) returns the same.
///
/// `Option<Idempotent>` is for a handler that also takes requests without a key. A replay does not reach a
/// handler, so a handler need not check for replays.
///
/// # Errors
///
/// If a request did not come through an [`IdempotencyLayer`](super::IdempotencyLayer), or came without a key
/// where keys are optional, the answer is 500 `misconfigured`. `Option<Idempotent>` is `None` instead.
///
/// ```
/// use axum::extract::FromRequestParts;
/// use idem::http::Idempotent;
///
/// async fn pay(Idempotent(call): Idempotent) -> String {
///     if call.recovered() {
///         // An earlier run of this request may have paid: look first.
///     }
///     format!("paid under {}", call.downstream_key("gateway"))
/// }
/// # fn is_one<T: FromRequestParts<()>>() {}
/// # is_one::<Idempotent>();
/// # let _ = pay;
/// ```
#[derive(Clone, Debug)]
pub struct Idempotent(pub Context);

impl<S: Sync> FromRequestParts<S> for Idempotent {
    type Rejection = Error;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Error> {
        let missing = || Error::configuration("idem::http", "no idempotency key guards this handler");
        context().map(Self).ok_or_else(missing)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Idempotent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(context().map(Self))
    }
}

impl<S: Sync, T: Send + 'static> FromRequestParts<S> for Tx<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        Self::of(&parts.extensions)
    }
}

impl<S: Sync> FromRequestParts<S> for LongOperation {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        Self::of(&parts.extensions)
    }
}
