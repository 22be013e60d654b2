//! The rules of an operation that depend on the types of its results: which results are kept, how they are read, when the
//! key is due again, and what `recover` does.
//!
//! The attribute and [`Operation`] set the rules, and the engine uses them as a [`Codec`].

use std::fmt;
use std::future::Ready;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::{Codec, Encoded, NotDecoded, Stored, Values, from_bytes, no_terminal_errors, to_stored};
use super::operation::Operation;
use super::steps::Recovery;
use idem_core::protocol::Verdict;

/// The rules of an operation with results of these types: made by [`Operation::terminal`], [`Operation::record_if`] and
/// [`Operation::retry_after_error`]. `F` is the function of `terminal`, `()` without one.
///
/// It stores what the bounds on the types provide as function pointers. So only its constructors need the bounds, and
/// the code that takes it does not repeat them.
pub struct ResultRules<T, E, F = ()> {
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

impl<T, E> ResultRules<T, E> {
    /// Rules that keep every value and no error.
    pub(crate) const fn values() -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        Self { value: Format::json(), terminal: None, keeps: None, retry_after: None }
    }
}

impl<T, E, G> ResultRules<T, E, G> {
    /// The same rules, and errors for which `function` returns `true` are kept too.
    pub(crate) fn terminal<F>(self, function: F) -> ResultRules<T, E, F>
    where
        F: Fn(&E) -> bool,
        E: Serialize + for<'de> Deserialize<'de>,
    {
        let Self { value, terminal: _, keeps, retry_after } = self;
        let call = |function: &F, error: &E| function(error);
        let terminal = Some(Terminal { function, call, error: Format::json() });
        ResultRules { value, terminal, keeps, retry_after }
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
}

impl<T, E, F> Codec<T, E> for ResultRules<T, E, F> {
    fn encode(&self, result: &Result<T, E>, max_bytes: usize) -> Option<Encoded> {
        match (result, &self.terminal) {
            (Ok(value), _) if self.keeps.is_some_and(|keeps| !keeps(value)) => None,
            (Ok(value), _) => Some(Encoded::new(Verdict::Completed, (self.value.encode)(value, max_bytes))),
            (Err(error), Some(terminal)) if (terminal.call)(&terminal.function, error) => {
                Some(Encoded::new(Verdict::Failed, (terminal.error.encode)(error, max_bytes)))
            }
            (Err(_), _) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Result<Result<T, E>, NotDecoded> {
        match verdict {
            Verdict::Completed => (self.value.decode)(bytes).map(Ok),
            Verdict::Failed => {
                let terminal = self.terminal.as_ref().ok_or_else(no_terminal_errors)?;
                (terminal.error.decode)(bytes).map(Err)
            }
        }
    }

    fn retry_after(&self, result: &Result<T, E>, attempt: u32) -> Option<Duration> {
        match (result, self.retry_after) {
            (Err(error), Some(retry_after)) => Some(retry_after(error, attempt)),
            // After a value that is not kept, the key is due at once.
            (Ok(_), _) => Some(Duration::ZERO),
            _ => None,
        }
    }

    fn is_paced(&self) -> bool {
        self.keeps.is_some() || self.retry_after.is_some()
    }
}

impl<T, E, F: Clone> Clone for ResultRules<T, E, F> {
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

impl<T, E, F> fmt::Debug for ResultRules<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultRules")
            .field("terminal", &self.terminal.is_some())
            .field("record_if", &self.keeps.is_some())
            .field("retry_after", &self.retry_after.is_some())
            .finish()
    }
}

/// The rules of an operation for results of these types. An operation without rules, [`Operation<()>`](Operation), has
/// rules for all types that serialize.
pub trait RulesFor<T, E> {
    /// How results are kept.
    #[doc(hidden)]
    type Codec: Codec<T, E>;
    /// What `recover` does.
    #[doc(hidden)]
    type Recover: Recovers<T, E>;
    /// A copy of both, for one call.
    #[doc(hidden)]
    fn parts(&self) -> (Self::Codec, Self::Recover);
}

impl<T: Serialize + DeserializeOwned, E> RulesFor<T, E> for () {
    type Codec = Values;
    type Recover = NeverRecovers;

    fn parts(&self) -> (Values, NeverRecovers) {
        (Values, NeverRecovers)
    }
}

impl<T, E, F: Clone> RulesFor<T, E> for ResultRules<T, E, F> {
    type Codec = Self;
    type Recover = NeverRecovers;

    fn parts(&self) -> (Self, NeverRecovers) {
        (self.clone(), NeverRecovers)
    }
}

/// The rules of an operation with a `recover` function: made by [`Operation::recover`].
#[derive(Clone)]
pub struct WithRecover<R, G> {
    rules: R,
    recover: G,
}

impl<R, G> WithRecover<R, G> {
    pub(super) const fn new(rules: R, recover: G) -> Self {
        Self { rules, recover }
    }
}

impl<R: fmt::Debug, G> fmt::Debug for WithRecover<R, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithRecover").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<T, E, R, G, Q> RulesFor<T, E> for WithRecover<R, G>
where
    R: RulesFor<T, E>,
    G: Fn(Recovery) -> Q + Clone,
    Q: Future<Output = Result<Option<T>, E>>,
{
    type Codec = R::Codec;
    type Recover = By<G>;

    fn parts(&self) -> (R::Codec, By<G>) {
        (self.rules.parts().0, By(self.recover.clone()))
    }
}

/// How an operation finds out what an earlier run did.
#[doc(hidden)]
pub trait Recovers<T, E> {
    /// Whether it does.
    const EVER: bool;
    /// The future of `recover`.
    type Recovering: Future<Output = Result<Option<T>, E>>;
    /// Calls `recover`.
    fn recover(&self, recovery: Recovery) -> Self::Recovering;
}

/// Without a `recover` function.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct NeverRecovers;

impl<T, E> Recovers<T, E> for NeverRecovers {
    const EVER: bool = false;
    type Recovering = Ready<Result<Option<T>, E>>;

    fn recover(&self, _: Recovery) -> Self::Recovering {
        std::future::ready(Ok(None))
    }
}

/// By this function.
#[doc(hidden)]
#[derive(Clone)]
pub struct By<G>(G);

impl<G> fmt::Debug for By<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").finish_non_exhaustive()
    }
}

impl<T, E, G, Q> Recovers<T, E> for By<G>
where
    G: Fn(Recovery) -> Q,
    Q: Future<Output = Result<Option<T>, E>>,
{
    const EVER: bool = true;
    type Recovering = Q;

    fn recover(&self, recovery: Recovery) -> Q {
        (self.0)(recovery)
    }
}

impl Operation {
    fn typed<T: Serialize + DeserializeOwned, E>(self) -> Operation<ResultRules<T, E>> {
        self.map_rules(|()| ResultRules::values())
    }

    /// Records and replays errors for which `is_terminal` returns `true`; without it, every error releases the key.
    pub fn terminal<T, E, F>(self, is_terminal: F) -> Operation<ResultRules<T, E, F>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        F: Fn(&E) -> bool,
    {
        self.typed().terminal(is_terminal)
    }

    /// Returns values for which `keeps` returns `false` without recording them: the key is released, and the next call
    /// runs the body again. For values that are not final, such as "pending". Such a run counts as an attempt.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use std::time::Duration;
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// let charge = Operation::new("payments.charge")
    ///     .timeout(Duration::from_secs(120))
    /// // This caller gets "pending", and the next one runs the body again.
    ///     .record_if(|state: &String| state != "pending")
    ///     .retry_after_error(|_: &Error, attempt| Duration::from_secs(2 * u64::from(attempt)));
    /// let store = MemoryStore::new();
    /// let first = charge.run(&store, "order-42", || async { Ok("pending".to_owned()) }).await?;
    /// let second = charge.run(&store, "order-42", || async { Ok("paid".to_owned()) }).await?;
    /// assert_eq!((first.as_str(), second.as_str()), ("pending", "paid"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_if<T: Serialize + DeserializeOwned, E>(
        self,
        keeps: fn(&T) -> bool,
    ) -> Operation<ResultRules<T, E>> {
        self.typed().record_if(keeps)
    }

    /// When a key whose body failed is due again, given its error and the number of the attempt, from 1. It takes
    /// precedence over [`retry_after`](Self::retry_after), which is for a time that does not depend on the error, and is
    /// not called for errors that are [`terminal`](Self::terminal).
    pub fn retry_after_error<T: Serialize + DeserializeOwned, E>(
        self,
        retry_after: fn(&E, u32) -> Duration,
    ) -> Operation<ResultRules<T, E>> {
        self.typed().retry_after_error(retry_after)
    }
}

/// More rules for an operation that has some.
impl<T, E, F> Operation<ResultRules<T, E, F>> {
    /// As [`terminal`](Operation::terminal) of an operation without rules.
    pub fn terminal<G>(self, is_terminal: G) -> Operation<ResultRules<T, E, G>>
    where
        E: Serialize + DeserializeOwned,
        G: Fn(&E) -> bool,
    {
        self.map_rules(|rules| rules.terminal(is_terminal))
    }

    /// As [`record_if`](Operation::record_if) of an operation without rules.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        self.map_rules(|rules| rules.record_if(keeps))
    }

    /// As [`retry_after_error`](Operation::retry_after_error) of an operation without rules.
    pub fn retry_after_error(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        self.map_rules(|rules| rules.retry_after(retry_after))
    }
}
