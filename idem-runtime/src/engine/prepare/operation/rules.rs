//! The settings of an operation that depend on the types of its results: which results are recorded, when the
//! key is due again after an error, and what `recover` does.

use std::fmt;
use std::future::{Ready, ready};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Operation;
use crate::engine::body::steps::Recovery;
use crate::engine::record::codec::{ResultRules, codec};
use crate::error::Error;

/// The rules of an operation for results of these types. The default rules, those of
/// [`Operation<()>`](Operation), apply to all types that serialize and deserialize.
pub trait RulesFor<T, E>: Clone {
    /// Whether there is a `recover` function.
    #[doc(hidden)]
    const RECOVERS: bool = false;
    /// The future of `recover`.
    #[doc(hidden)]
    type Recovering: Future<Output = Result<Option<T>, E>>;
    /// The codec of the results.
    #[doc(hidden)]
    fn codec(&self) -> ResultRules<T, E>;
    /// Calls `recover`.
    #[doc(hidden)]
    fn recover(&self, recovery: Recovery) -> Self::Recovering;
}

impl<T: Serialize + DeserializeOwned, E: From<Error>> RulesFor<T, E> for () {
    type Recovering = Ready<Result<Option<T>, E>>;

    fn codec(&self) -> ResultRules<T, E> {
        codec()
    }

    fn recover(&self, _: Recovery) -> Self::Recovering {
        ready(Ok(None))
    }
}

impl<T, E> RulesFor<T, E> for ResultRules<T, E> {
    type Recovering = Ready<Result<Option<T>, E>>;

    fn codec(&self) -> Self {
        *self
    }

    fn recover(&self, _: Recovery) -> Self::Recovering {
        ready(Ok(None))
    }
}

/// The rules of an operation with a `recover` function: made by [`Operation::recover`].
#[derive(Clone)]
pub struct WithRecover<R, G> {
    pub(super) rules: R,
    pub(super) recover: G,
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
    const RECOVERS: bool = true;
    type Recovering = Q;

    fn codec(&self) -> ResultRules<T, E> {
        self.rules.codec()
    }

    fn recover(&self, recovery: Recovery) -> Q {
        (self.recover)(recovery)
    }
}

impl<R> Operation<R> {
    /// Records and replays errors for which `is_terminal` returns `true`. Without this setting, every error
    /// releases the key.
    pub fn terminal<T, E>(self, is_terminal: fn(&E) -> bool) -> Operation<ResultRules<T, E>>
    where
        R: Into<ResultRules<T, E>>,
        E: Serialize + DeserializeOwned,
    {
        self.map_rules(|rules| rules.into().terminal(is_terminal))
    }

    /// Records a value only if `keeps` returns `true` for it. Any other value is returned but not recorded:
    /// the key is released, and the next call runs the body again. Use it for values that are not final, such
    /// as "pending". Such a run counts as an attempt.
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
    pub fn record_if<T, E>(self, keeps: fn(&T) -> bool) -> Operation<ResultRules<T, E>>
    where
        R: Into<ResultRules<T, E>>,
    {
        self.map_rules(|rules| rules.into().record_if(keeps))
    }

    /// When a key whose body failed is due again. The function gets the error and the number of the attempt,
    /// from 1, and returns the delay. It takes precedence over [`retry_after`](Self::retry_after), whose
    /// delay does not depend on the error. It is not called for errors that are
    /// [`terminal`](Self::terminal).
    pub fn retry_after_error<T, E>(self, retry_after: fn(&E, u32) -> Duration) -> Operation<ResultRules<T, E>>
    where
        R: Into<ResultRules<T, E>>,
    {
        self.map_rules(|rules| rules.into().retry_after(retry_after))
    }
}
