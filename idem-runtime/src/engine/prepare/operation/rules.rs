//! The settings of an operation that depend on the types of its results: which results are recorded, when the key is due
//! again after an error, and what `recover` does.

use std::fmt;
use std::future::Ready;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Operation;
use crate::engine::body::steps::Recovery;
use crate::engine::record::codec::ResultRules;

/// The rules of an operation for results of these types. An operation without rules, [`Operation<()>`](Operation), has
/// rules for all types that serialize.
pub trait RulesFor<T, E> {
    /// What `recover` does.
    #[doc(hidden)]
    type Recover: Recovers<T, E>;
    /// A copy of the rules and of `recover`, for one call.
    #[doc(hidden)]
    fn parts(&self) -> (ResultRules<T, E>, Self::Recover);
}

impl<T: Serialize + DeserializeOwned, E> RulesFor<T, E> for () {
    type Recover = NeverRecovers;

    fn parts(&self) -> (ResultRules<T, E>, NeverRecovers) {
        (ResultRules::values(), NeverRecovers)
    }
}

impl<T, E> RulesFor<T, E> for ResultRules<T, E> {
    type Recover = NeverRecovers;

    fn parts(&self) -> (Self, NeverRecovers) {
        (*self, NeverRecovers)
    }
}

/// The rules of an operation with a `recover` function: made by [`Operation::recover`].
#[derive(Clone)]
pub struct WithRecover<R, G> {
    rules: R,
    recover: G,
}

impl<R, G> WithRecover<R, G> {
    pub(crate) const fn new(rules: R, recover: G) -> Self {
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
    type Recover = By<G>;

    fn parts(&self) -> (ResultRules<T, E>, By<G>) {
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
    pub fn terminal<T, E>(self, is_terminal: fn(&E) -> bool) -> Operation<ResultRules<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
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
impl<T, E> Operation<ResultRules<T, E>> {
    /// As [`terminal`](Operation::terminal) of an operation without rules.
    pub fn terminal(self, is_terminal: fn(&E) -> bool) -> Self
    where
        E: Serialize + DeserializeOwned,
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
