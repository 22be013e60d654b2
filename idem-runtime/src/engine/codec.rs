//! How results become bytes and come back: JSON.
//!
//! A user's `Serialize`, `Deserialize` or terminal function runs here, so a panic of the first two
//! is caught: by then the body has had its effect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use smallvec::SmallVec;

use crate::protocol::{StoredResult, Tombstone, Verdict};

/// What a short result is, in bytes.
const SHORT: usize = 128;

/// How the results of an operation are kept.
pub(crate) trait Codec<T, E> {
    /// What to record of a result; `None` if the key is to be released instead.
    fn encode(&self, result: &Result<T, E>, max_bytes: usize) -> Option<(Verdict, StoredResult)>;

    /// The result that was recorded, or `None` if these bytes are none.
    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Option<Result<T, E>>;
}

/// Values are kept, errors are not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values;

impl<T: Serialize + DeserializeOwned, E> Codec<T, E> for Values {
    fn encode(&self, result: &Result<T, E>, max_bytes: usize) -> Option<(Verdict, StoredResult)> {
        let value = result.as_ref().ok()?;
        Some((Verdict::Completed, to_stored(value, max_bytes)))
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Option<Result<T, E>> {
        match verdict {
            Verdict::Completed => from_bytes(bytes).map(Ok),
            Verdict::Failed => None,
        }
    }
}

/// Values are kept, and the errors for which the function holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal<F>(pub(crate) F);

impl<T, E, F> Codec<T, E> for Terminal<F>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned,
    F: Fn(&E) -> bool,
{
    fn encode(&self, result: &Result<T, E>, max_bytes: usize) -> Option<(Verdict, StoredResult)> {
        match result {
            Ok(value) => Some((Verdict::Completed, to_stored(value, max_bytes))),
            Err(error) if (self.0)(error) => Some((Verdict::Failed, to_stored(error, max_bytes))),
            Err(_) => None,
        }
    }

    fn decode(&self, verdict: Verdict, bytes: &[u8]) -> Option<Result<T, E>> {
        match verdict {
            Verdict::Completed => from_bytes(bytes).map(Ok),
            Verdict::Failed => from_bytes(bytes).map(Err),
        }
    }
}

pub(crate) fn to_stored<T: Serialize>(value: &T, max_bytes: usize) -> StoredResult {
    // A short result has its room beside the count of those who share it: one allocation for both.
    let mut bytes = SmallVec::<[u8; SHORT]>::new();
    match catch_unwind(AssertUnwindSafe(|| serde_json::to_writer(&mut bytes, value))) {
        Ok(Ok(())) if bytes.len() > max_bytes => StoredResult::Tombstone(Tombstone::TooLarge),
        Ok(Ok(())) => StoredResult::Value(Bytes::from_owner(bytes)),
        Ok(Err(_)) | Err(_) => StoredResult::Tombstone(Tombstone::NotEncodable),
    }
}

pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| serde_json::from_slice(bytes))).ok()?.ok()
}
