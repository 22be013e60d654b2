//! The recorded result that [`Operation::begin`](crate::Operation::begin) returns instead of an attempt, or
//! that a lost attempt ends with.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::engine::prepare::Call;
use crate::engine::record::codec::from_bytes;
use crate::engine::report::Outcome;
use crate::error::{Error, Loss};
use idem_core::Store;
use idem_core::protocol::{Replay, Verdict};

/// The recorded result of a key.
pub struct Replayed<S: Store> {
    call: Arc<Call<S>>,
    replay: Replay,
}

impl<S: Store> Replayed<S> {
    pub(super) const fn new(call: Arc<Call<S>>, replay: Replay) -> Self {
        Self { call, replay }
    }

    /// The value that was recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Undecodable`] if the result is an error or does not decode into `T`,
    /// [`Error::ResultNotStored`] if the result could not be stored.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.call.replayed(&self.replay, |verdict, bytes| match verdict {
            Verdict::Completed => from_bytes(bytes),
            Verdict::Failed => Err("it is an error, and a value is expected".into()),
        })
    }

    /// The value or the error that was recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Undecodable`] if the value does not decode into `T` or the error does not decode into `E`,
    /// [`Error::ResultNotStored`] if the result could not be stored.
    pub fn result<T: DeserializeOwned, E: DeserializeOwned>(&self) -> Result<Result<T, E>, Error> {
        self.call.replayed(&self.replay, |verdict, bytes| match verdict {
            Verdict::Completed => from_bytes(bytes).map(Ok),
            Verdict::Failed => from_bytes(bytes).map(Err),
        })
    }

    /// The result in a format of the caller's own. `decode` gets the bytes of the result, and returns the
    /// value or the reason why they do not decode. The error and the event show the reason, so it must not
    /// contain the result.
    ///
    /// # Errors
    ///
    /// [`Error::Undecodable`] with the reason that `decode` returned, [`Error::ResultNotStored`] if the
    /// result could not be stored.
    pub fn decode_with<T>(
        &self,
        decode: impl FnOnce(Verdict, &[u8]) -> Result<T, String>,
    ) -> Result<T, Error> {
        self.call.replayed(&self.replay, |verdict, bytes| decode(verdict, bytes).map_err(Arc::from))
    }

    /// Which attempt made the result, when it was recorded, and when it expires.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::replayed(&self.replay)
    }
}

impl<S: Store> fmt::Debug for Replayed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayed").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}

/// Why an attempt's own work does not count.
pub enum Interrupted<S: Store> {
    /// Another attempt took over the key, and this is its result: return it.
    Replay(Replayed<S>),
    /// The claim is lost, or the work took longer than its timeout.
    Refused(Error),
}

/// For callers that need only an error: the result of another attempt becomes [`Error::LeaseLost`]. A caller
/// gets that result when it calls again.
impl<S: Store> From<Interrupted<S>> for Error {
    fn from(interrupted: Interrupted<S>) -> Self {
        match interrupted {
            Interrupted::Replay(replay) => Self::LeaseLost { call: replay.call.id(), loss: Loss::TakenOver },
            Interrupted::Refused(error) => error,
        }
    }
}

// Not derived, because that would need a store that is `Debug`.
impl<S: Store> fmt::Debug for Interrupted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(replay) => f.debug_tuple("Replay").field(replay).finish(),
            Self::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
        }
    }
}
