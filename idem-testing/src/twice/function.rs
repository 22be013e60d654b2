//! A function that is called several times.

use std::convert::Infallible;
use std::fmt::Debug;

use super::Twice;
use super::repetition::{Answer, AnswerKind};

impl<T: PartialEq + Debug, E: Debug> Answer for Result<T, E> {
    /// Terminal errors are `Final`, too, but this method cannot recognize them. The idempotent call itself
    /// reports that its error is terminal.
    fn kind(&self) -> AnswerKind {
        if self.is_ok() { AnswerKind::Final } else { AnswerKind::Retryable }
    }

    fn difference(&self, other: &Self) -> String {
        let is_same = match (self, other) {
            (Ok(first), Ok(second)) => first == second,
            (first, second) => format!("{first:?}") == format!("{second:?}"),
        };
        if is_same { String::new() } else { format!("`{self:?}` and then `{other:?}`") }
    }
}

impl<F> Twice<F> {
    /// Makes the call of a closure several times, and returns its one answer: see [`Twice`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// # let charges = Arc::new(AtomicU64::new(0));
    /// # let count = { let charges = charges.clone(); move || std::future::ready(charges.load(Relaxed)) };
    /// let (store, charge) = (MemoryStore::new(), Operation::new("payments.charge"));
    /// let call = || charge.run(&store, "order-42", || async { Ok::<_, Error>(charges.fetch_add(1, Relaxed)) });
    /// let receipt = idem_testing::twice(call).effects(count).answer().await.unwrap();
    /// # assert_eq!(receipt, 0);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the call, if no call returned a value.
    ///
    /// # Panics
    ///
    /// If the function did something twice, if a repeated call returned something else, or if nothing was
    /// checked.
    pub async fn answer<B, T, E>(self) -> Result<T, E>
    where
        F: Fn() -> B,
        B: Future<Output = Result<T, E>>,
        T: PartialEq + Debug,
        E: Debug,
    {
        let Ok(answer) =
            self.repeat("call", None, || async { Ok::<_, Infallible>((self.inner)().await) }).await;
        answer
    }
}
