//! The codec of an operation: which of its results are recorded, as which bytes, how recorded bytes come
//! back, and which types may be results.
//!
//! It consists of function pointers, which its constructors take from the types of the results. So only the constructors
//! need bounds on those types, and the code that uses a codec is not generic over a trait.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::body::context::{CallEnd, CallEvent, Outcome};
use crate::engine::body::steps::{Recovery, recovery};
use crate::engine::prepare::call::Details;
use crate::engine::record::encoding::{Stored, from_bytes, to_stored};
use crate::engine::report::Event;
use crate::error::Error;
use idem_core::protocol::{Replay, StoredResult, Tombstone, Verdict};

/// How the results `R` of a function are recorded, which are a `Result<T, E>`: made by [`codec`] and, for an
/// [`Operation`](crate::Operation), by [`terminal`](crate::Operation::terminal),
/// [`record_if`](crate::Operation::record_if) and [`retry_after_error`](crate::Operation::retry_after_error).
pub struct Codec<R, T, E> {
    as_result: fn(&R) -> Result<&T, &E>,
    from_result: fn(Result<T, E>) -> R,
    from_error: fn(Error) -> E,
    encode: Encode<T>,
    decode: Decode<T>,
    terminal: Option<Terminal<E>>,
    keeps: Option<fn(&T) -> bool>,
    retry_after: Option<fn(&E, u32) -> Duration>,
}

/// Which errors are recorded, and how.
type Terminal<E> = (fn(&E) -> bool, Encode<E>, Decode<E>);
type Encode<T> = fn(&T, usize) -> Stored;
type Decode<T> = fn(&[u8]) -> Result<T, Arc<str>>;

/// The rules of an operation with results of these types.
pub type ResultRules<T, E> = Codec<Result<T, E>, T, E>;

impl<R, T, E> Clone for Codec<R, T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T, E> Copy for Codec<R, T, E> {}

impl<R, T, E> fmt::Debug for Codec<R, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

/// The codec of a function that returns `R`: it records every value and no error.
#[must_use]
pub fn codec<R: Recordable>() -> Codec<R, R::Value, R::Error> {
    Codec {
        as_result: R::as_result,
        from_result: R::from_result,
        from_error: From::from,
        encode: to_stored,
        decode: from_bytes,
        terminal: None,
        keeps: None,
        retry_after: None,
    }
}

impl<T: Serialize + DeserializeOwned, E: From<Error>> From<()> for ResultRules<T, E> {
    /// Those of an operation without rules.
    fn from((): ()) -> Self {
        codec()
    }
}

impl<R, T, E> Codec<R, T, E> {
    /// The same codec, and errors for which `is_terminal` returns `true` are recorded too.
    pub fn terminal(self, is_terminal: fn(&E) -> bool) -> Self
    where
        E: Serialize + for<'de> Deserialize<'de>,
    {
        Self { terminal: Some((is_terminal, to_stored, from_bytes)), ..self }
    }

    /// The same codec, and values for which `keeps` returns `false` are returned and not recorded.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { keeps: Some(keeps), ..self }
    }

    /// The same codec, with a function that returns how long the key is not due after an error, given the number of the
    /// attempt.
    pub fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// The argument for `recover`, if it is due.
    ///
    /// # Errors
    ///
    /// What the function returns because the steps of earlier runs cannot be read.
    pub async fn begin_recovery(&self) -> Result<Option<Recovery>, R> {
        recovery::begin().await.map_err(|error| self.refusal(error))
    }

    /// What the function returns without running its body, if anything, after this call of `recover`.
    pub async fn recover(&self, call: impl Future<Output = Result<Option<T>, E>>) -> Option<R> {
        if let Some(result) = recovery::answer(call).await {
            return Some((self.from_result)(result));
        }
        recovery::refusal().await.map(|error| self.refusal(error))
    }

    /// What to record for this result; `None` to release the key instead.
    pub(crate) fn encode(&self, call: &Details, result: &R) -> Option<(Verdict, Stored)> {
        let max_bytes = call.max_result_bytes;
        match ((self.as_result)(result), self.terminal) {
            (Ok(value), _) if self.keeps.is_some_and(|keeps| !keeps(value)) => None,
            (Ok(value), _) => Some((Verdict::Completed, (self.encode)(value, max_bytes))),
            (Err(error), Some((is_terminal, encode, _))) if is_terminal(error) => {
                Some((Verdict::Failed, encode(error, max_bytes)))
            }
            (Err(_), _) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Result<Result<T, E>, Arc<str>> {
        match (verdict, self.terminal) {
            (Verdict::Completed, _) => (self.decode)(bytes).map(Ok),
            (Verdict::Failed, Some((.., decode))) => decode(bytes).map(Err),
            (Verdict::Failed, None) => Err("it is a terminal error, and this operation keeps none".into()),
        }
    }

    /// If a duplicate cannot get this result, reports that now and not when a duplicate comes.
    pub(crate) fn check(&self, call: &Details, attempt: u32, verdict: Verdict, stored: &Stored) {
        if let Some(fault) = &stored.fault {
            call.report(&Event::NOT_STORED.because(fault), attempt);
        }
        // Decoding doubles the work, so it is checked in debug builds only.
        if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &stored.result)
            // The copy is dropped in there too, because that may panic.
            && let Ok(Some(fault)) =
                catch_unwind(AssertUnwindSafe(|| self.decode(verdict, bytes).err()))
        {
            call.report(&Event::NOT_REPLAYABLE.because(&fault), attempt);
        }
    }

    /// The recorded result, or the error that the caller gets instead.
    pub(crate) fn replayed(&self, call: &Details, replay: &Replay) -> R {
        let decoded = call.replayed(replay, |verdict, bytes| self.decode(verdict, bytes));
        decoded.map_or_else(|error| self.refusal(error), self.from_result)
    }

    /// The function's result for an error of idem.
    pub(crate) fn refusal(&self, error: Error) -> R {
        (self.from_result)(Err((self.from_error)(error)))
    }

    pub(crate) fn is_value(&self, result: &R) -> bool {
        (self.as_result)(result).is_ok()
    }

    /// How long a key that is released after this attempt is not due; `None` to use the operation's own setting.
    pub(crate) fn retry_delay(&self, result: &R, attempt: u32) -> Option<Duration> {
        match ((self.as_result)(result), self.retry_after) {
            (Err(error), Some(retry_after)) => Some(retry_after(error, attempt)),
            // After a value that is not kept, the key is due at once.
            (Ok(_), _) => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether a value may be returned without being recorded, or an error decides when the key is due.
    pub(crate) const fn is_paced(&self) -> bool {
        self.keeps.is_some() || self.retry_after.is_some()
    }
}

impl Details {
    /// What `decode` makes of a recorded result, or the error that the caller gets instead.
    pub(crate) fn replayed<T>(
        &self,
        replay: &Replay,
        decode: impl FnOnce(Verdict, &[u8]) -> Result<T, Arc<str>>,
    ) -> Result<T, Error> {
        let (call, attempt) = (|| self.id(), replay.attempt);
        let result = match &replay.result {
            StoredResult::Value(bytes) => decode(replay.verdict, bytes).map_err(|reason| {
                self.report(&Event::UNDECODABLE.because(&reason), attempt);
                Error::Undecodable { call: call(), reason }
            }),
            StoredResult::Tombstone(Tombstone::Exhausted) => {
                Err(Error::Exhausted { call: call(), attempts: attempt })
            }
            StoredResult::Tombstone(reason) => {
                Err(Error::ResultNotStored { call: call(), reason: (*reason).into() })
            }
        };
        if matches!(result, Ok(_) | Err(Error::ResultNotStored { .. })) {
            self.tell(&CallEvent::Outcome(Outcome::replayed(replay)));
            self.report(&Event::REPLAYED, attempt);
        }
        if result.is_ok() && replay.verdict == Verdict::Failed {
            self.tell(&CallEvent::Ended(&CallEnd::Terminal));
        }
        result.map_err(|error| self.refuse(error))
    }
}

/// A return type whose value can be recorded and replayed.
#[diagnostic::on_unimplemented(
    message = "an idempotent function cannot return `{Self}`",
    label = "this must be a `Result<T, E>` with `T: Serialize + DeserializeOwned` and `E: From<idem::Error>`"
)]
pub trait Recordable {
    /// The value that is recorded.
    type Value: Serialize + DeserializeOwned;
    /// The error type, into which idem's own error is converted.
    type Error: From<Error>;
    /// It as a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the body.
    fn as_result(&self) -> Result<&Self::Value, &Self::Error>;
    /// Makes it from a `Result`.
    fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
}

impl<T: RecordableValue, E: OwnError> Recordable for Result<T, E> {
    type Value = T;
    type Error = E;

    fn as_result(&self) -> Result<&T, &E> {
        self.as_ref()
    }

    fn from_result(result: Self) -> Self {
        result
    }
}

/// A value that can be recorded, with a message for each that cannot.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    label = "the value `{Self}` must be `serde::Serialize` and `serde::Deserialize`",
    note = "derive both for a type of your own: `#[derive(serde::Serialize, serde::Deserialize)]`; for another crate's type, look \
            for its feature `serde`",
    note = "a response, such as `axum::Json`, is not recorded: annotate the function that the handler calls, or use the HTTP layer"
)]
pub trait RecordableValue: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> RecordableValue for T {}

/// A function's own error, into which idem's error is converted, with a message for each that is none.
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` cannot be made from `idem::Error`",
    label = "the error `{Self}` must be `From<idem::Error>`",
    note = "with thiserror, add a variant: `#[error(transparent)] Idem(#[from] idem::Error)`; otherwise write \
            `impl From<idem::Error> for {Self}`"
)]
pub trait OwnError: From<Error> {}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> OwnError for E {}
