//! The audit trail: who settled which record, when and why. It is kept in the same store.
//!
//! An entry is a record of its own, in the scope [`TRAIL`]: it outlives a record that is forgotten, and every store can keep it. It is
//! written before the action, as a step, and completed after it. The outcome of an entry that is not completed is unknown.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use idem_core::listing::ListedResult;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, OnCrash, Owner, RecordStep, RecordStepAnswer, RecordedStep, Seen,
    StoredResult, Timestamp, Verdict,
};
use idem_core::{Key, RecordKey, Scope, Store as _};
use idem_runtime::DynStore;
use serde_json::{Value, json};

use super::access::Access;
use super::end::{Answer, End, Trouble};
use super::output::{Output, date, safe};
use super::walk::{TRAIL, Walk};

/// How long an entry is kept: 400 days.
const KEPT: Duration = Duration::from_secs(400 * 86_400);
/// How long an action may take until its entry counts as unfinished.
const LEASE: Duration = Duration::from_secs(60);

/// The options for the audit trail.
#[derive(Args, Clone)]
pub(crate) struct Trail {
    /// Your name, for the audit trail; the user of this machine unless given
    #[arg(long, env = "IDEM_OPERATOR", value_name = "NAME")]
    by: Option<String>,
    /// The reason, for the audit trail: a ticket, or what the other side said
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// An action, and the record as it was shown.
pub(crate) struct Deed<'d> {
    pub(crate) action: &'static str,
    pub(crate) scope: &'d str,
    pub(crate) digest: String,
    pub(crate) seen: Option<Seen>,
}

impl Trail {
    #[cfg(feature = "console")]
    pub(crate) const fn new(by: String, reason: Option<String>) -> Self {
        Self { by: Some(by), reason }
    }

    fn by(&self) -> String {
        let user = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        self.by.clone().or_else(user).unwrap_or_else(|| "unknown".to_owned())
    }

    fn json(&self, deed: &Deed<'_>) -> Value {
        json!({
            "action": deed.action,
            "scope": deed.scope,
            "digest": deed.digest,
            "was": deed.seen.map(|seen| seen.state.as_str()),
            "fence": deed.seen.map(|seen| seen.fence.get()),
            "attempt": deed.seen.map(|seen| seen.attempt),
            "by": self.by(),
            "reason": self.reason,
        })
    }

    /// Runs the action between the two writes of its entry.
    pub(crate) async fn around<T>(
        &self,
        store: &DynStore,
        deed: &Deed<'_>,
        act: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let mut entry = self.json(deed);
        let (name, owner) = (entry_name(&deed.digest)?, Owner::random());
        let claim = Claim::new(owner, LEASE, KEPT).with_on_crash(OnCrash::InDoubt);
        let ClaimAnswer::Granted(grant) = store.claim(&name, &claim).await? else {
            return Err(Trouble::new(End::Unusable, "the trail cannot be written; nothing was done"));
        };
        let step = RecordedStep::new("begun".to_owned(), None, StoredResult::Value(entry.to_string().into()));
        if store.record_step(&name, &RecordStep::new(owner, grant.fence, 0, step)).await?
            != RecordStepAnswer::Recorded
        {
            return Err(Trouble::new(End::Unusable, "the trail cannot be written; nothing was done"));
        }
        let done = act.await;
        entry["outcome"] = match &done {
            Ok(_) => "done",
            // The outcome is unknown: the entry stays uncompleted.
            Err(Trouble::Said(End::Unreachable, _)) => return done,
            Err(_) => "nothing was done",
        }
        .into();
        let result = StoredResult::Value(entry.to_string().into());
        let complete = Complete::new(owner, grant.fence, Verdict::Completed, result, KEPT);
        if let (Err(error), Ok(_)) = (store.complete(&name, &complete).await, &done) {
            // The action is done although its entry is not completed. A failure to print cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "idem: it is done, but the trail does not show that: {error}");
        }
        done
    }
}

/// A new name for an entry, which begins with the record's digest.
fn entry_name(digest: &str) -> Answer<RecordKey> {
    let unique: String = Owner::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let name = || Some(RecordKey::new(Scope::new(TRAIL).ok()?, Key::new(format!("{digest}/{unique}")).ok()?));
    name().ok_or_else(|| Trouble::new(End::Unusable, "the trail cannot be written; nothing was done"))
}

#[derive(Args)]
pub(crate) struct Audit {
    /// Only entries about this operation
    #[arg(long)]
    scope: Option<String>,
    /// Only entries about the record that `idem list` shows with this digest
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
    /// How many of the newest entries to list; 0 for all
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
}

/// An entry that was read.
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    pub(crate) what: Value,
}

impl Entry {
    pub(crate) fn text(&self, field: &str) -> String {
        safe(self.what[field].as_str().unwrap_or("-"))
    }
}

/// The entries, the newest first.
pub(crate) async fn entries(access: &Access, digest: Option<&str>) -> Answer<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut walk = Walk::of_the_trail(&access.store);
    while let Some(page) = walk.page().await? {
        for listed in page.records {
            let name = listed.key.key().as_str();
            if digest.is_some_and(|digest| !name.starts_with(digest)) {
                continue;
            }
            let Some(record) = access.lenient.get(&listed.key).await? else { continue };
            let begun = record.steps.first().map(|step| &step.result);
            let (result, is_known) = match (&record.result, listed.result) {
                (Some(result), Some(ListedResult::Value { .. })) => (Some(result), true),
                _ => (begun, false),
            };
            let Some(StoredResult::Value(bytes)) = result else { continue };
            // Encrypted, and no key ring was given: only the entry's existence is known.
            let mut what: Value = serde_json::from_slice(bytes).unwrap_or_else(|_| json!({ "sealed": true }));
            if !is_known {
                what["outcome"] = "unknown".into();
            }
            entries.push(Entry { at: record.created_at, what });
        }
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    Ok(entries)
}

pub(crate) async fn run(audit: &Audit, access: &Access, output: &mut Output) -> Answer {
    let digest = audit.digest.as_ref().map(|digest| digest.trim().to_ascii_lowercase());
    let mut entries = entries(access, digest.as_deref()).await?;
    if let Some(scope) = &audit.scope {
        entries.retain(|entry| entry.what["scope"] == scope.as_str());
    }
    if audit.limit > 0 {
        entries.truncate(audit.limit);
    }
    if entries.is_empty() {
        return Ok(End::Nothing);
    }
    if output.is_json() {
        for entry in &entries {
            let mut line = entry.what.clone();
            line["at"] = date(entry.at).into();
            output.line(line.to_string())?;
        }
        return Ok(End::Done);
    }
    let fields = ["by", "action", "scope", "digest", "was", "outcome", "reason"];
    let rows: Vec<[String; 8]> = entries
        .iter()
        .map(|entry| {
            let mut row: [String; 8] = Default::default();
            row[0] = date(entry.at);
            for (place, field) in row[1..].iter_mut().zip(fields) {
                *place = entry.text(field);
            }
            row
        })
        .collect();
    output.table(["AT", "BY", "ACTION", "SCOPE", "DIGEST", "WAS", "OUTCOME", "REASON"], &rows)?;
    Ok(End::Done)
}
