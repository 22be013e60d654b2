//! The codec of an operation: which of its results are recorded, as which bytes, and how recorded bytes come back.
//!
//! It consists of function pointers, which its constructors take from the types of the results. So only the constructors
//! need bounds on those types, and the code that uses a codec is not generic over a trait.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::body::steps::{Recovery, recovery};
use crate::engine::prepare::call::Call;
use crate::engine::record::encoding::{Encoded, NotDecoded, Stored, from_bytes, to_stored};
use crate::engine::record::returns::Recordable;
use crate::engine::report::Event;
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::{Replay, StoredResult, Verdict};

/// How the results `R` of a function are recorded, which are a `Result<T, E>`.
pub struct Codec<R, T, E> {
    as_result: fn(&R) -> Result<&T, &E>,
    from_result: fn(Result<T, E>) -> R,
    from_error: fn(Error) -> E,
    rules: ResultRules<T, E>,
}

impl<R, T, E> Clone for Codec<R, T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T, E> Copy for Codec<R, T, E> {}

impl<R, T, E> fmt::Debug for Codec<R, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Codec").field(&self.rules).finish()
    }
}

/// The codec of a function that returns `R`: it records every value and no error.
#[must_use]
pub fn codec<R: Recordable>() -> Codec<R, R::Value, R::Error> {
    Codec {
        as_result: R::as_result,
        from_result: R::from_result,
        from_error: From::from,
        rules: ResultRules::values(),
    }
}

impl<R, T, E> Codec<R, T, E> {
    /// The same codec, and errors for which `is_terminal` returns `true` are recorded too.
    pub fn terminal(self, is_terminal: fn(&E) -> bool) -> Self
    where
        E: Serialize + for<'de> Deserialize<'de>,
    {
        Self { rules: self.rules.terminal(is_terminal), ..self }
    }

    /// The same codec, and values for which `keeps` returns `false` are returned and not recorded.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { rules: self.rules.record_if(keeps), ..self }
    }

    /// The same codec, with a function that returns how long the key is not due after an error, given the number of the
    /// attempt.
    pub fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { rules: self.rules.retry_after(retry_after), ..self }
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
        let refusal = recovery::confirm().await.err().or_else(recovery::past_the_limit);
        refusal.map(|error| self.refusal(error))
    }

    /// What to record for this result; `None` to release the key instead.
    pub(crate) fn encode<S: Store>(&self, call: &Call<S>, result: &R) -> Option<Encoded> {
        self.rules.encode((self.as_result)(result), call.max_result_bytes())
    }

    /// If a duplicate cannot get this result, reports that now and not when a duplicate comes.
    pub(crate) fn check<S: Store>(&self, call: &Call<S>, attempt: u32, encoded: &Encoded) {
        if let Some(fault) = &encoded.stored.fault {
            call.report(Event::NotStored(fault), attempt);
        }
        // Decoding doubles the work, so it is checked in debug builds only.
        if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &encoded.stored.result)
            // The copy is dropped in there too, because that may panic.
            && let Ok(Some(fault)) =
                catch_unwind(AssertUnwindSafe(|| self.rules.decode(encoded.verdict, bytes).err()))
        {
            call.report(Event::NotReplayable(fault.reason()), attempt);
        }
    }

    /// The recorded result, or the error that the caller gets instead.
    pub(crate) fn replayed<S: Store>(&self, call: &Call<S>, replay: &Replay) -> R {
        let decoded = call.replayed(replay, |verdict, bytes| self.rules.decode(verdict, bytes));
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
        match ((self.as_result)(result), self.rules.retry_after) {
            (Err(error), Some(retry_after)) => Some(retry_after(error, attempt)),
            // After a value that is not kept, the key is due at once.
            (Ok(_), _) => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether a value may be returned without being recorded, or an error decides when the key is due.
    pub(crate) const fn is_paced(&self) -> bool {
        self.rules.keeps.is_some() || self.rules.retry_after.is_some()
    }
}

impl<T, E: From<Error>> Codec<Result<T, E>, T, E> {
    pub(crate) fn of_results(rules: ResultRules<T, E>) -> Self {
        Self { as_result: Result::as_ref, from_result: |result| result, from_error: From::from, rules }
    }
}

/// The rules of an operation with results of these types: made by [`Operation::terminal`], [`Operation::record_if`] and
/// [`Operation::retry_after_error`].
///
/// [`Operation::terminal`]: crate::Operation::terminal
/// [`Operation::record_if`]: crate::Operation::record_if
/// [`Operation::retry_after_error`]: crate::Operation::retry_after_error
pub struct ResultRules<T, E> {
    value: Format<T>,
    terminal: Option<Terminal<E>>,
    keeps: Option<fn(&T) -> bool>,
    retry_after: Option<fn(&E, u32) -> Duration>,
}

struct Terminal<E> {
    is_terminal: fn(&E) -> bool,
    error: Format<E>,
}

struct Format<T> {
    encode: fn(&T, usize) -> Stored,
    decode: fn(&[u8]) -> Result<T, NotDecoded>,
}

impl<T: Serialize + DeserializeOwned> Format<T> {
    const fn json() -> Self {
        Self { encode: to_stored, decode: from_bytes }
    }
}

impl<T, E> ResultRules<T, E> {
    /// Rules that keep every value and no error.
    pub(crate) const fn values() -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        Self { value: Format::json(), terminal: None, keeps: None, retry_after: None }
    }

    pub(crate) fn terminal(self, is_terminal: fn(&E) -> bool) -> Self
    where
        E: Serialize + for<'de> Deserialize<'de>,
    {
        Self { terminal: Some(Terminal { is_terminal, error: Format::json() }), ..self }
    }

    pub(crate) fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { keeps: Some(keeps), ..self }
    }

    pub(crate) fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    fn encode(&self, result: Result<&T, &E>, max_bytes: usize) -> Option<Encoded> {
        match (result, &self.terminal) {
            (Ok(value), _) if self.keeps.is_some_and(|keeps| !keeps(value)) => None,
            (Ok(value), _) => Some(Encoded::new(Verdict::Completed, (self.value.encode)(value, max_bytes))),
            (Err(error), Some(terminal)) if (terminal.is_terminal)(error) => {
                Some(Encoded::new(Verdict::Failed, (terminal.error.encode)(error, max_bytes)))
            }
            (Err(_), _) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Result<Result<T, E>, NotDecoded> {
        match (verdict, &self.terminal) {
            (Verdict::Completed, _) => (self.value.decode)(bytes).map(Ok),
            (Verdict::Failed, Some(terminal)) => (terminal.error.decode)(bytes).map(Err),
            (Verdict::Failed, None) => {
                Err(NotDecoded::because("it is a terminal error, and this operation keeps none"))
            }
        }
    }
}

impl<T, E> Clone for ResultRules<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for ResultRules<T, E> {}

impl<E> Clone for Terminal<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Terminal<E> {}

impl<T> Clone for Format<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Format<T> {}

impl<T, E> fmt::Debug for ResultRules<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultRules")
            .field("terminal", &self.terminal.is_some())
            .field("record_if", &self.keeps.is_some())
            .field("retry_after", &self.retry_after.is_some())
            .finish()
    }
}
