//! The functions that generated code calls if the attribute has `recover`.

use super::Codec;
use crate::engine::{self, Recovery};
use crate::error::Error;

/// Calls `recover` before the body, with the function's own types.
#[derive(Debug)]
pub struct Recovering<R, T, E> {
    from_result: fn(Result<T, E>) -> R,
    error: fn(Error) -> E,
}

/// The [`Recovering`] of a function with this codec.
pub fn recovering<R, T, E, F>(codec: &Codec<R, T, E, F>) -> Recovering<R, T, E> {
    Recovering { from_result: codec.from_result, error: codec.error }
}

impl<R, T, E> Recovering<R, T, E> {
    /// The argument for `recover`, if it is due.
    ///
    /// # Errors
    ///
    /// What the function returns because the steps of earlier runs cannot be read.
    pub async fn begin(&self) -> Result<Option<Recovery>, R> {
        engine::begin_recovery().await.map_err(|error| (self.from_result)(Err((self.error)(error))))
    }

    /// What the function returns without running its body, if anything, after `recover` answered.
    pub async fn ask(&self, asked: impl Future<Output = Result<Option<T>, E>>) -> Option<R> {
        let answer = engine::ask(asked).await;
        let refused = match answer {
            Some(_) => None,
            None => engine::confirm().await.err().or_else(engine::past_the_limit),
        };
        let answer = answer.or_else(|| refused.map(|error| Err((self.error)(error))));
        answer.map(self.from_result)
    }
}
