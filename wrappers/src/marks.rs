//! A mark: a record that a layer leaves in the store, so that a process with other encryption keys or another
//! secret is refused.
//!
//! Owns the names, the bytes and the comparison of marks. A mark has the layer's name, a key's number and a
//! check value of that key, but never the key. A mark is an ordinary record under a scope that no operation
//! can have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use idem_core::defaults::LONGEST;
use idem_core::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, StoredResult, Verdict};
use idem_core::{Key, RESERVED_SCOPES, RecordKey, Scope, Store, StoreError, StoreErrorKind};

pub(super) const SCOPE: &str = RESERVED_SCOPES[1];

/// How long one check of the marks may take.
const WITHIN: Duration = Duration::from_secs(2);
/// If a check of the marks finds other keys, later calls get its error for this time, without a new check.
const AGAIN: Duration = Duration::from_secs(5);
/// If a check of the marks fails but finds no other keys, later calls get its error for this time. The time
/// is long enough that only one of many simultaneous calls checks the marks.
const SOON: Duration = Duration::from_millis(250);
/// The lease for writing a mark: no other process writes the mark during this time.
const LEASE: Duration = Duration::from_secs(5);
/// If another process is writing a mark, the pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// A layer that leaves a mark.
pub(super) struct Layer {
    /// The layer's name in its marks.
    pub(super) name: &'static str,
    /// The text of the error if a mark in the store belongs to another key.
    pub(super) differs: &'static str,
}

impl Layer {
    fn refusal(&self) -> StoreError {
        StoreError::wrong_keys(self.differs)
    }
}

/// What a mark says about one key of a layer.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: u32,
    /// A value that only this key gives, and from which the key cannot be computed.
    pub(super) check: String,
}

/// What this process knows about the marks of a layer. The clones of the layer's store share this value.
pub(super) struct Marks {
    /// Whether a comparison of the marks succeeded, or this store does not compare them at all.
    are_settled: AtomicBool,
    /// The last check that failed: when it ended, and its error.
    last: Mutex<Option<(Instant, StoreError)>>,
    /// The owner that claims the marks. It is the same for each check, so that a check continues where an
    /// interrupted check stopped.
    owner: Owner,
}

impl Marks {
    /// Marks that are compared at the first use, or never if `are_settled` is true.
    pub(super) fn new(are_settled: bool) -> Arc<Self> {
        let are_settled = AtomicBool::new(are_settled);
        Arc::new(Self { are_settled, last: Mutex::default(), owner: Owner::random() })
    }

    pub(super) fn are_settled(&self) -> bool {
        self.are_settled.load(Ordering::Acquire)
    }

    /// Compares these marks with the marks in the store, and writes the marks that the store lacks. If a
    /// check failed shortly before, returns the error of that check instead.
    pub(super) async fn look<S: Store>(
        &self,
        store: &S,
        layer: &Layer,
        marks: &[Mark],
    ) -> Result<(), StoreError> {
        let counts = |(at, error): &&(Instant, StoreError)| {
            at.elapsed() < if error.kind() == StoreErrorKind::WrongKeys { AGAIN } else { SOON }
        };
        let mut last = self.last.lock().await;
        if self.are_settled() {
            return Ok(());
        }
        if let Some((_, error)) = last.as_ref().filter(counts) {
            return Err(error.clone());
        }
        let unknown = || StoreError::unavailable("it did not answer about the marks of its layers in time");
        let error = match timeout(WITHIN, self.leave(store, layer, marks)).await {
            Ok(Ok(())) => {
                self.are_settled.store(true, Ordering::Release);
                return Ok(());
            }
            // Only the answer to a request about the marks was lost. The call itself has not reached the
            // store, so its outcome is known.
            Ok(Err(error)) if error.is_outcome_unknown() => unknown(),
            Ok(Err(error)) => error,
            Err(_) => unknown(),
        };
        *last = Some((Instant::now(), error.clone()));
        Err(error)
    }

    async fn leave<S: Store>(&self, store: &S, layer: &Layer, marks: &[Mark]) -> Result<(), StoreError> {
        let (missing, is_marked) = compare(store, layer, marks).await?;
        if !is_marked && let Some(first) = marks.first() {
            // If two processes start at once, one of them writes its mark first. The other reads that mark
            // and compares it with its own marks.
            let first = self.write(store, &name(layer.name, None)?, layer, first).await?;
            if !marks.contains(&first) {
                return Err(layer.refusal());
            }
        }
        for mark in missing {
            let name = name(layer.name, Some(mark.number))?;
            if self.write(store, &name, layer, mark).await? != *mark {
                return Err(layer.refusal());
            }
        }
        Ok(())
    }

    /// Writes a mark, unless the store already has a mark with this name. Returns the mark in the store.
    async fn write<S: Store>(
        &self,
        store: &S,
        name: &RecordKey,
        layer: &Layer,
        mark: &Mark,
    ) -> Result<Mark, StoreError> {
        loop {
            let request = Claim::new(self.owner, LEASE, LONGEST);
            match store.claim(name, &request).await? {
                ClaimAnswer::Granted(grant) => {
                    let result = written(layer.name, mark);
                    let complete =
                        Complete::new(request.owner, grant.fence, Verdict::Completed, result, LONGEST);
                    if store.complete(name, &complete).await? == CompleteAnswer::Done {
                        return Ok(mark.clone());
                    }
                }
                ClaimAnswer::Replay(replay) => return mark_of(&replay.result),
                // Another process is writing the mark at the moment. The caller of this function limits the
                // wait.
                _ => sleep(PAUSE).await,
            }
        }
    }
}

pub(super) fn is_mark(key: &RecordKey) -> bool {
    key.scope().as_str() == SCOPE
}

/// The name of a layer's mark or, with a number, of the mark of one of the layer's keys.
pub(super) fn name(layer: &str, number: Option<u32>) -> Result<RecordKey, StoreError> {
    let text = number.map_or_else(|| layer.to_owned(), |number| format!("{layer}/{number}"));
    let wrong = |error: idem_core::KeyError| StoreError::configuration(error.to_string());
    Ok(RecordKey::new(Scope::new(SCOPE).map_err(wrong)?, Key::new(text).map_err(wrong)?))
}

fn written(layer: &str, mark: &Mark) -> StoredResult {
    let text = json!({ "layer": layer, "key": mark.number, "check": mark.check, "over": [] }).to_string();
    StoredResult::Value(text.into())
}

fn parsed(result: &StoredResult) -> Option<Value> {
    let StoredResult::Value(bytes) = result else { return None };
    serde_json::from_slice(bytes).ok()
}

fn mark_of(result: &StoredResult) -> Result<Mark, StoreError> {
    let read = || {
        let value = parsed(result)?;
        let number = u32::try_from(value["key"].as_u64()?).ok()?;
        Some(Mark { number, check: value["check"].as_str()?.to_owned() })
    };
    read().ok_or_else(|| {
        StoreError::corrupt_record("a mark of how the store is wrapped cannot be read; find out who wrote it")
    })
}

/// The layers between the layer of this mark and the store, beginning with the outermost.
#[cfg(feature = "encryption")]
pub(super) fn over(result: Option<&StoredResult>) -> Vec<String> {
    let value = result.and_then(parsed).unwrap_or_default();
    let names = value["over"].as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Changes the mark of an outer layer on its way to the store: appends the name of this layer to `over`.
pub(super) fn through(layer: &str, result: &StoredResult) -> StoredResult {
    let Some(mut value) = parsed(result) else { return result.clone() };
    if let Some(over) = value["over"].as_array_mut() {
        over.push(layer.into());
    }
    StoredResult::Value(value.to_string().into())
}

/// Returns the marks that the store lacks, and whether the store has at least one of `marks`. Fails if the
/// store has a mark of this layer for another key.
pub(super) async fn compare<'m, S: Store>(
    store: &S,
    layer: &Layer,
    marks: &'m [Mark],
) -> Result<(Vec<&'m Mark>, bool), StoreError> {
    let mut missing = Vec::new();
    for mark in marks {
        match store.get(&name(layer.name, Some(mark.number))?).await?.and_then(|record| record.result) {
            None => missing.push(mark),
            Some(result) if mark_of(&result)? == *mark => {}
            Some(_) => return Err(layer.refusal()),
        }
    }
    if missing.len() < marks.len() {
        return Ok((missing, true));
    }
    match store.get(&name(layer.name, None)?).await?.and_then(|record| record.result) {
        None => Ok((missing, false)),
        Some(result) if marks.contains(&mark_of(&result)?) => Ok((missing, true)),
        Some(_) => Err(layer.refusal()),
    }
}
