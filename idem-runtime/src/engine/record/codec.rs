//! The codec of an operation: which of its results are recorded, how they are encoded and decoded, and which
//! types may be results.
//!
//! A codec consists of function pointers, which its constructors take from the types of the results. So only
//! the constructors need bounds on those types. Code that uses a codec needs none.
//!
//! The bytes are JSON, and their first byte identifies the format ([`ResultFormat`]). The user's `Serialize`
//! and `Deserialize` run here. If they panic, the panic is caught, because the body has had its effect by
//! then. The text of a fault that this file reports never holds a value.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::engine::body::steps::{Recovery, recovery};
use crate::engine::prepare::Details;
use crate::engine::report::{CallEnd, CallEvent, Event, Outcome};
use crate::error::Error;
use idem_core::protocol::{Replay, ResultFormat, StoredResult, Tombstone, Verdict};

/// How the results of a function are recorded. The function returns `R`, which is `Result<T, E>`. A codec is
/// made by [`codec`] and, for an [`Operation`](crate::Operation), by
/// [`terminal`](crate::Operation::terminal), [`record_if`](crate::Operation::record_if) and
/// [`retry_after_error`](crate::Operation::retry_after_error).
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
    /// The rules of an operation that sets no rules.
    fn from((): ()) -> Self {
        codec()
    }
}

impl<R, T, E> Codec<R, T, E> {
    /// The same codec, which also records errors for which `is_terminal` returns `true`.
    pub fn terminal(self, is_terminal: fn(&E) -> bool) -> Self
    where
        E: Serialize + for<'de> Deserialize<'de>,
    {
        Self { terminal: Some((is_terminal, to_stored, from_bytes)), ..self }
    }

    /// The same codec, which records only those values for which `keeps` returns `true`.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { keeps: Some(keeps), ..self }
    }

    /// The same codec, with a function that takes an error and the number of the attempt, and returns the
    /// time until the key is due again.
    pub fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// The argument for `recover`, if `recover` is due.
    ///
    /// # Errors
    ///
    /// What the function returns if the steps of earlier runs cannot be read.
    pub async fn begin_recovery(&self) -> Result<Option<Recovery>, R> {
        recovery::begin().await.map_err(|error| self.refusal(error))
    }

    /// What the function returns after this call of `recover`; `None` if the body runs.
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

    /// If a duplicate cannot get this result, reports that now and not when a duplicate comes.
    pub(crate) fn check(&self, call: &Details, attempt: u32, verdict: Verdict, stored: &Stored) {
        if let Some(fault) = &stored.fault {
            call.report(&Event::NOT_STORED.because(fault), attempt);
        }
        // Decoding doubles the work, so the result is decoded only in debug builds.
        if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &stored.result) {
            // The decoded copy is dropped inside `catch_unwind` too, because dropping it may panic.
            let fault = || match (verdict, self.terminal) {
                (Verdict::Failed, Some((.., decode))) => decode(bytes).err(),
                _ => (self.decode)(bytes).err(),
            };
            if let Ok(Some(fault)) = catch_unwind(AssertUnwindSafe(fault)) {
                call.report(&Event::NOT_REPLAYABLE.because(&fault), attempt);
            }
        }
    }

    /// The recorded result, or the error that the caller gets instead.
    pub(crate) fn replayed(&self, call: &Details, replay: &Replay) -> R {
        let decoded = call.replayed(replay, |verdict, bytes| match (verdict, self.terminal) {
            (Verdict::Completed, _) => (self.decode)(bytes).map(Ok),
            (Verdict::Failed, Some((.., decode))) => decode(bytes).map(Err),
            (Verdict::Failed, None) => Err("it is a terminal error, and this operation keeps none".into()),
        });
        decoded.map_or_else(|error| self.refusal(error), self.from_result)
    }

    /// The function's result for an error of idem.
    pub(crate) fn refusal(&self, error: Error) -> R {
        (self.from_result)(Err((self.from_error)(error)))
    }

    pub(crate) fn is_value(&self, result: &R) -> bool {
        (self.as_result)(result).is_ok()
    }

    /// How long after this attempt the released key is due again; `None` if the operation's policy decides.
    pub(crate) fn retry_delay(&self, result: &R, attempt: u32) -> Option<Duration> {
        match ((self.as_result)(result), self.retry_after) {
            (Err(error), Some(retry_after)) => Some(retry_after(error, attempt)),
            // After a value that is not kept, the key is due at once.
            (Ok(_), _) => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether the operation has a `record_if`, or a function for `retry_after`.
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
            if let Some(observer) = &self.observer {
                observer.report(&CallEvent::Outcome(Outcome::replayed(replay)));
            }
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
    /// This value as a `Result`.
    ///
    /// # Errors
    ///
    /// The error of the body.
    fn as_result(&self) -> Result<&Self::Value, &Self::Error>;
    /// Makes the value from a `Result`.
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

/// A value that can be recorded. This trait replaces the bounds `Serialize + DeserializeOwned`, so that rustc
/// shows this trait's message if the type of a value does not fit.
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

/// The error type of a function, into which idem's error is converted. This trait replaces the bound
/// `From<Error>`, so that rustc shows this trait's message if an error type does not fit.
#[diagnostic::on_unimplemented(
    message = "the error `{Self}` cannot be made from `idem::Error`",
    label = "the error `{Self}` must be `From<idem::Error>`",
    note = "with thiserror, add a variant: `#[error(transparent)] Idem(#[from] idem::Error)`; otherwise write \
            `impl From<idem::Error> for {Self}`"
)]
pub trait OwnError: From<Error> {}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> OwnError for E {}

/// The largest result that [`Limited`] keeps inline, in bytes.
const SHORT: usize = 128;

/// A value as it is recorded. If the value cannot be recorded, `result` is a tombstone and `fault` is the
/// reason in words.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) result: StoredResult,
    pub(crate) fault: Option<Arc<str>>,
}

/// A writer with a limit, so that the encoding of a result far above the limit stops early.
struct Limited {
    // A short result is stored inline, beside the reference count of `Bytes::from_owner`, so both take one
    // allocation.
    bytes: SmallVec<[u8; SHORT]>,
    most: usize,
    exceeded: bool,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.exceeded || bytes.len() > self.most - self.bytes.len() {
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn to_stored<T: Serialize>(value: &T, max_bytes: usize) -> Stored {
    let mut limited = Limited { bytes: SmallVec::new(), most: max_bytes, exceeded: false };
    let written = catch_unwind(AssertUnwindSafe(|| serde_json::to_writer(&mut limited, value)));
    let (tombstone, fault) = match written {
        // This arm comes first, because a user's `Serialize` may ignore the writer's error and return `Ok`.
        _ if limited.exceeded => {
            (Tombstone::TooLarge, format!("it takes more than {max_bytes} bytes").into())
        }
        Ok(Ok(())) => {
            return Stored { result: StoredResult::Value(Bytes::from_owner(limited.bytes)), fault: None };
        }
        Ok(Err(error)) => (Tombstone::NotEncodable, encoding_fault(&error).into()),
        Err(_) => (Tombstone::NotEncodable, "its `Serialize` panicked".into()),
    };
    Stored { result: StoredResult::Tombstone(tombstone), fault: Some(fault) }
}

pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Arc<str>> {
    // An empty value has no format, so it goes to the decoder, which refuses it.
    if let Some(written) = ResultFormat::of(bytes).filter(|written| *written != ResultFormat::Json) {
        return Err(format!("expected {}, found {written}", ResultFormat::Json).into());
    }
    match catch_unwind(AssertUnwindSafe(|| serde_json::from_slice(bytes))) {
        Ok(decoded) => decoded.map_err(|error| decoding_fault(&error).into()),
        Err(_) => Err("its `Deserialize` panicked".into()),
    }
}

/// The beginnings of known error texts of serde and of derived code. The rest of such a text, and any other
/// text, may contain a value.
const ENCODING_FAULTS: [&str; 6] = [
    "key must be a string",
    "float key must be finite",
    "number out of range",
    "cannot serialize tagged newtype variant",
    "can only flatten structs and maps",
    "path contains invalid UTF-8 characters",
];

fn encoding_fault(error: &serde_json::Error) -> &'static str {
    let text = error.to_string();
    let known = ENCODING_FAULTS.iter().find(|known| text.starts_with(**known));
    // The rest of the text is left out, because it may come from the user's code.
    known.map_or("its `Serialize` returned an error", |known| known)
}

/// The reason and the position, without the value that was found there.
fn decoding_fault(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    // An error from a user's own code may have no position.
    let message = text.strip_suffix(&position).unwrap_or(&text);
    let reason = match error.classify() {
        // The text is the parser's own and holds no value.
        Category::Io | Category::Syntax | Category::Eof => message.to_owned(),
        Category::Data => without_value(message),
    };
    if error.line() == 0 { reason } else { format!("{reason}{position}") }
}

/// The beginnings of error texts that first name what was found and then what was expected.
const FOUND: [&str; 5] =
    ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `", "unknown field `"];

/// The words of serde's `Unexpected`, and of `serde_json`, for the kind of a value. Any other word may be a
/// value.
const KINDS: [&str; 17] = [
    "boolean",
    "integer",
    "floating point",
    "character",
    "string",
    "byte array",
    "unit value",
    "null",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "enum",
    "unit variant",
    "newtype variant",
    "tuple variant",
    "struct variant",
];

fn without_value(message: &str) -> String {
    // These texts only name fields and types of the program.
    let safe = ["missing field `", "duplicate field `", "data did not match any variant of untagged enum "];
    if safe.iter().any(|known| message.starts_with(known)) {
        return message.to_owned();
    }
    let Some(fault) = FOUND.iter().find(|fault| message.starts_with(**fault)) else {
        return "its `Deserialize` returned an error".to_owned();
    };
    let value = &message[fault.len()..];
    let is_of_kind = fault.ends_with(": ");
    let fault = fault.trim_end_matches([' ', ':', '`']);
    let mut reason = fault.to_owned();
    if is_of_kind {
        // The text names the kind of the value first, then the value in quotes.
        let kind = value.split(['`', '"', ',']).next().unwrap_or_default().trim();
        if !KINDS.contains(&kind) {
            // The text is not serde's own but, for example, that of `serde_repr`. It may contain the value.
            return reason;
        }
        reason = format!("{fault}: {kind}");
    }
    // The value may contain this text too, so the last occurrence counts.
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if !expected.contains('"') => format!("{reason}, expected {expected}"),
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoded")]
    struct Receipt {
        number: u8,
        kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        Paid,
    }

    #[test]
    fn a_reason_says_what_and_where_and_never_the_value() {
        for (json, reason) in [
            (r#"{"number":1}"#, "missing field `kind` at line 1 column 12"),
            (r#"{"number":"a, expected secret"}"#, "invalid type: string, expected u8 at line 1 column 30"),
            (r#"{"number":4711}"#, "invalid value: integer, expected u8 at line 1 column 14"),
            (r#"{"kind":"secret"}"#, "unknown variant, expected `Paid` at line 1 column 16"),
            (r#"{"secret":1}"#, "unknown field, expected `number` or `kind` at line 1 column 9"),
            (r#"{"number":"#, "EOF while parsing a value at line 1 column 10"),
        ] {
            assert_eq!(from_bytes::<Receipt>(json.as_bytes()).unwrap_err().as_ref(), reason, "{json}");
        }
    }

    #[test]
    fn an_error_of_a_users_own_code_is_not_repeated_even_if_it_begins_as_one_of_serde() {
        struct Own(&'static str);
        impl Serialize for Own {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom(self.0))
            }
        }
        #[derive(Debug)]
        struct Read;
        impl<'de> Deserialize<'de> for Read {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Err(serde::de::Error::custom(String::deserialize(deserializer)?))
            }
        }
        let reason = from_bytes::<Read>(b"\"secret\"").unwrap_err();
        assert_eq!(reason.as_ref(), "its `Deserialize` returned an error");
        let fault = to_stored(&Own("secret"), 100).fault.unwrap();
        assert_eq!(fault.as_ref(), "its `Serialize` returned an error");
        let fault = to_stored(&HashMap::from([((1_u8, 2_u8), 3)]), 100).fault.unwrap();
        assert_eq!(fault.as_ref(), "key must be a string");
        for text in ["number out of range: 4711", "key must be a string, not 4711"] {
            let fault = to_stored(&Own(text), 100).fault.unwrap();
            assert!(!fault.to_string().contains("4711"), "{fault}");
        }
        for text in [
            "invalid value: 4711",
            "invalid value: 4711, expected one of: 1, 2",
            "invalid length 4711, expected fewer elements in array",
            "invalid type: account 4711",
            "unknown variant 4711, expected 12",
            "unknown field 4711",
        ] {
            let bytes = serde_json::to_vec(text).unwrap();
            let reason = from_bytes::<Read>(&bytes).unwrap_err().to_string();
            assert!(!reason.contains("4711"), "{reason}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_encoded_to_its_end() {
        /// Counts how many of its items are encoded.
        struct Endless(std::cell::Cell<usize>);
        impl Serialize for Endless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq((0..1_000_000).inspect(|_| self.0.set(self.0.get() + 1)))
            }
        }
        let endless = Endless(std::cell::Cell::new(0));
        let stored = to_stored(&endless, 100);
        assert_eq!(stored.result, StoredResult::Tombstone(Tombstone::TooLarge));
        assert_eq!(stored.fault.as_deref(), Some("it takes more than 100 bytes"));
        assert!(endless.0.get() < 100, "{} were encoded", endless.0.get());
        assert_eq!(to_stored(&"a".repeat(98), 100).fault, None);
        assert_eq!(to_stored(&"a".repeat(99), 100).fault.as_deref(), Some("it takes more than 100 bytes"));
    }
}
