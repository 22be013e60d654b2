//! The rules of an operation that depend on the types of its results: which results are kept, how they are read, and
//! when the key is due again.
//!
//! The attribute and [`TypedOperation`](super::TypedOperation) set the rules, and the engine uses them as a [`Codec`].

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::{Codec, Encoded, NotDecoded, Stored, from_bytes, no_terminal_errors, to_stored};
use super::returns::Failure;
use idem_core::protocol::Verdict;

/// The rules of an operation with results of these types.
///
/// It stores what the bounds on the types provide as function pointers. So only its constructors need the bounds, and
/// the code that takes it does not repeat them.
pub(crate) struct Rules<T, E, F = ()> {
    value: Format<T>,
    terminal: Option<Terminal<E, F>>,
    keeps: Option<fn(&T) -> bool>,
    retry_after: Option<fn(&E, u32) -> Duration>,
}

struct Terminal<E, F> {
    function: F,
    call: fn(&F, &E) -> bool,
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

impl<T, E> Rules<T, E> {
    /// Rules that keep every value and no error.
    pub(crate) const fn values() -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        Self { value: Format::json(), terminal: None, keeps: None, retry_after: None }
    }
}

impl<T, E, G> Rules<T, E, G> {
    /// The same rules, and errors for which `function` returns `true` are kept too.
    pub(crate) fn terminal<F>(self, function: F) -> Rules<T, E, F>
    where
        F: Fn(&E) -> bool,
        E: Serialize + for<'de> Deserialize<'de>,
    {
        let Self { value, terminal: _, keeps, retry_after } = self;
        let call = |function: &F, error: &E| function(error);
        let terminal = Some(Terminal { function, call, error: Format::json() });
        Rules { value, terminal, keeps, retry_after }
    }

    /// The same rules, and values for which `keeps` returns `false` are returned and not recorded.
    pub(crate) fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { keeps: Some(keeps), ..self }
    }

    /// The same rules, with a function that returns how long the key is not due after an error, given the number of the
    /// attempt.
    pub(crate) fn retry_after(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// Whether a value may be returned without being recorded, or an error decides when the key is due.
    pub(crate) const fn is_paced(&self) -> bool {
        self.keeps.is_some() || self.retry_after.is_some()
    }
}

impl<T, E, F> Codec<T, Failure<E>> for Rules<T, E, F> {
    fn encode(&self, result: &Result<T, Failure<E>>, max_bytes: usize) -> Option<Encoded> {
        match (result, &self.terminal) {
            (Ok(value), _) if self.keeps.is_some_and(|keeps| !keeps(value)) => None,
            (Ok(value), _) => Some(Encoded::new(Verdict::Completed, (self.value.encode)(value, max_bytes))),
            (Err(Failure::Body(error)), Some(terminal)) if (terminal.call)(&terminal.function, error) => {
                Some(Encoded::new(Verdict::Failed, (terminal.error.encode)(error, max_bytes)))
            }
            (Err(_), _) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Result<Result<T, Failure<E>>, NotDecoded> {
        match verdict {
            Verdict::Completed => (self.value.decode)(bytes).map(Ok),
            Verdict::Failed => {
                let terminal = self.terminal.as_ref().ok_or_else(no_terminal_errors)?;
                Ok(Err(Failure::Body((terminal.error.decode)(bytes)?)))
            }
        }
    }

    fn retry_after(&self, result: &Result<T, Failure<E>>, attempt: u32) -> Option<Duration> {
        match (result, self.retry_after) {
            (Err(Failure::Body(error)), Some(retry_after)) => Some(retry_after(error, attempt)),
            // After a value that is not kept, the key is due at once.
            (Ok(_), _) => Some(Duration::ZERO),
            _ => None,
        }
    }
}

/// Borrowed by one call.
impl<T, E, F> Codec<T, Failure<E>> for &Rules<T, E, F> {
    fn encode(&self, result: &Result<T, Failure<E>>, max_bytes: usize) -> Option<Encoded> {
        (**self).encode(result, max_bytes)
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Result<Result<T, Failure<E>>, NotDecoded> {
        (**self).decode(verdict, bytes)
    }

    fn retry_after(&self, result: &Result<T, Failure<E>>, attempt: u32) -> Option<Duration> {
        <Rules<T, E, F> as Codec<T, Failure<E>>>::retry_after(self, result, attempt)
    }
}

impl<T, E, F: Clone> Clone for Rules<T, E, F> {
    fn clone(&self) -> Self {
        let terminal = self.terminal.as_ref();
        Self {
            value: self.value.clone(),
            terminal: terminal.map(|Terminal { function, call, error }| Terminal {
                function: function.clone(),
                call: *call,
                error: error.clone(),
            }),
            keeps: self.keeps,
            retry_after: self.retry_after,
        }
    }
}

impl<T> Clone for Format<T> {
    fn clone(&self) -> Self {
        Self { encode: self.encode, decode: self.decode }
    }
}

impl<T, E, F> fmt::Debug for Rules<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("terminal", &self.terminal.is_some())
            .field("record_if", &self.keeps.is_some())
            .field("retry_after", &self.retry_after.is_some())
            .finish()
    }
}
