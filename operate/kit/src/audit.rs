//! The audit trail: who settled or revealed which record, when and why. It is kept in the store of the
//! records.
//!
//! An entry is a separate record in the scope [`TRAIL`]. So every store can keep entries, and an entry
//! remains when the record is forgotten. An entry is started before the action, with a step, and completed
//! after the action. If an entry is not completed, its outcome is unknown.

use std::time::Duration;

use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, OnCrash, Owner, Record, RecordStep, RecordStepAnswer, RecordedStep, Seen,
    StoredResult, Timestamp, Verdict,
};
use idem_core::{RecordKey, Store as _, StoreErrorKind, listing};
use idem_runtime::DynStore;
use serde_json::{Value, json};

use crate::access::Access;
use crate::error::{Error, Kind, Result};
use crate::find;
use crate::text::{date, random_hex, safe};
use crate::walk::{TRAIL, Walk};

/// How long an entry is kept: 400 days.
const KEPT: Duration = Duration::from_secs(400 * 86_400);
/// The lease of an entry. Nobody else claims an entry, so an action that takes longer still completes its
/// entry.
const LEASE: Duration = Duration::from_secs(60);

/// Who acts, and why, for the audit trail.
#[derive(Clone)]
pub struct Trail {
    /// The person's name.
    pub by: String,
    /// The reason, such as a ticket, or what the other side said.
    pub reason: Option<String>,
}

/// An action, and the record that the person was shown.
pub struct Deed<'d> {
    /// What is done, in one word.
    pub action: &'static str,
    /// The operation.
    pub scope: &'d str,
    /// The record's digest.
    pub digest: String,
    /// The version of the record that was shown, if the record could be read.
    pub seen: Option<Seen>,
}

impl<'d> Deed<'d> {
    /// An action on the record of this key.
    pub fn on(key: &'d RecordKey, action: &'static str, seen: Option<Seen>) -> Self {
        Self { action, scope: key.scope().as_str(), digest: key.digest().to_string(), seen }
    }
}

impl Trail {
    fn json(&self, deed: &Deed<'_>) -> Value {
        json!({
            "action": deed.action,
            "scope": deed.scope,
            "digest": deed.digest,
            "was": deed.seen.map(|seen| seen.state.as_str()),
            "fence": deed.seen.map(|seen| seen.fence.get()),
            "attempt": deed.seen.map(|seen| seen.attempt),
            "by": self.by,
            "reason": self.reason,
        })
    }

    /// Starts an entry about `deed` in the audit trail, runs the action `act`, and completes the entry.
    ///
    /// # Errors
    ///
    /// The entry cannot be started, so the action does not run. Or the action fails.
    pub async fn around<T>(
        &self,
        store: &DynStore,
        deed: &Deed<'_>,
        act: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut entry = self.json(deed);
        let (name, owner) = (entry_name(&deed.digest)?, Owner::random());
        let claim = Claim::new(owner, LEASE, KEPT).with_on_crash(OnCrash::InDoubt);
        let ClaimAnswer::Granted(grant) = store.claim(&name, &claim).await? else {
            return Err(Error::new(Kind::Unusable, "the trail cannot be written; nothing was done"));
        };
        let step = RecordedStep::new("begun".to_owned(), None, StoredResult::Value(entry.to_string().into()));
        if store.record_step(&name, &RecordStep::new(owner, grant.fence, 0, step)).await?
            != RecordStepAnswer::Recorded
        {
            return Err(Error::new(Kind::Unusable, "the trail cannot be written; nothing was done"));
        }
        let done = act.await;
        entry["outcome"] = match &done {
            Ok(_) => "done",
            // The outcome is unknown, so the entry is not completed.
            Err(error) if error.kind() == Kind::Unreachable => return done,
            Err(_) => "nothing was done",
        }
        .into();
        let result = StoredResult::Value(entry.to_string().into());
        let complete = Complete::new(owner, grant.fence, Verdict::Completed, result, KEPT);
        if let (Err(error), Ok(_)) = (store.complete(&name, &complete).await, &done) {
            // The action is done, but its entry is not completed, so the trail shows the outcome as unknown.
            tracing::warn!(target: "idem", event = "trail_incomplete", error = %error, "done, but the trail does not show that");
        }
        done
    }
}

/// A new name for an entry, which begins with the record's digest.
fn entry_name(digest: &str) -> Result<RecordKey> {
    listing::name(TRAIL, &format!("{digest}/{}", random_hex()))
        .ok_or_else(|| Error::new(Kind::Unusable, "the trail cannot be written; nothing was done"))
}

/// An entry that was read from the store.
pub struct Entry {
    /// When the entry was started.
    pub at: Timestamp,
    /// The content of the entry: what was done to which record, by whom, why, when, and how it ended.
    pub what: Value,
}

impl Entry {
    /// A field as text that is safe to show.
    #[must_use]
    pub fn text(&self, field: &str) -> String {
        safe(self.what[field].as_str().unwrap_or("-"))
    }
}

/// The entries, the newest first: all entries, or the entries about the record with this digest.
///
/// # Errors
///
/// The store fails.
pub async fn entries(access: &Access, digest: Option<&str>) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut walk = Walk::new(&access.store, Vec::new(), Some(find::scope(TRAIL)?));
    while let Some(page) = walk.page().await? {
        for listed in page.records {
            let name = listed.key.key().as_str();
            if digest.is_some_and(|digest| !name.starts_with(digest)) {
                continue;
            }
            let at = listed.record.created_at;
            let mut what = match access.lenient.get(&listed.key).await {
                Ok(Some(record)) => match what(&record) {
                    Some(what) => what,
                    None => continue,
                },
                Ok(None) => continue,
                // The key ring no longer has the key that encrypted the entry.
                Err(error) if error.kind() == StoreErrorKind::CorruptRecord => json!({ "sealed": true }),
                Err(error) => return Err(error.into()),
            };
            what["at"] = date(at).into();
            entries.push(Entry { at, what });
        }
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    Ok(entries)
}

/// The content of an entry; `None` if the entry was never started.
fn what(record: &Record) -> Option<Value> {
    let (result, is_known) = match (&record.result, record.steps.first()) {
        (Some(result @ StoredResult::Value(_)), _) => (result, true),
        (_, begun) => (&begun?.result, false),
    };
    let StoredResult::Value(bytes) = result else { return None };
    // If the entry is encrypted and no key ring was given, only the entry's existence is known.
    let read = serde_json::from_slice(bytes).ok().filter(Value::is_object);
    let mut what = read.unwrap_or_else(|| json!({ "sealed": true }));
    if !is_known {
        what["outcome"] = "unknown".into();
    }
    Some(what)
}
