//! `idem show`.

use clap::Args;
use idem::listing::Listed;
use idem::protocol::{OnCrash, State, StoredResult, Timestamp};
use idem::{DynStore, Store as _};
use serde_json::Value;

use super::end::{Answer, End, Trouble};
use super::output::{self, Output, date, safe, span};
use super::target::Target;
use super::walk;

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    target: Target,
    /// Show the result, too, which may be private
    #[arg(long)]
    result: bool,
    /// Show the key, too, which is private
    #[arg(long)]
    keys: bool,
}

pub(crate) async fn run(show: &Show, store: &DynStore, output: &mut Output) -> Answer {
    let key = show.target.find(store).await?;
    let now = walk::now(store).await?;
    // A result that lies there compressed is shown as it was before.
    #[cfg(feature = "zstd")]
    let store = &store.clone().compressed_up_to(usize::MAX);
    let Some(record) = store.get(&key).await? else {
        return Err(Trouble::new(End::Nothing, "there is no such record"));
    };
    let result = record.result.clone();
    let listed = Listed::new(key, record);
    if output.is_json() {
        let mut shown = output::record_json(&listed, now, show.keys);
        if show.result
            && let Some(StoredResult::Value(bytes)) = &result
        {
            match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => shown["result"]["value"] = value,
                Err(_) => shown["result"]["not_json"] = String::from_utf8_lossy(bytes).into(),
            }
        }
        output.line(shown.to_string())?;
        return Ok(End::Done);
    }
    for (name, text) in lines(&listed, now, show.keys) {
        output.line(format!("{name:<13}{text}"))?;
    }
    if show.result
        && let Some(StoredResult::Value(bytes)) = &result
    {
        output.line(safe(&String::from_utf8_lossy(bytes)))?;
    }
    Ok(End::Done)
}

fn lines(listed: &Listed, now: Timestamp, with_key: bool) -> Vec<(&'static str, String)> {
    let Listed { key, record, result } = listed;
    let ago = |at: Timestamp| match at > now {
        true => format!("{}  in {}", date(at), span(at.since(now))),
        false => format!("{}  {} ago", date(at), span(now.since(at))),
    };
    let mut lines = vec![("digest", key.digest().to_string()), ("scope", safe(key.scope().as_str()))];
    if with_key {
        lines.push(("key", safe(key.key().as_str())));
    }
    lines.push(("state", output::state_word(record.state).to_owned()));
    let recovered = if record.recovered { ", taken over from a worker that went away" } else { "" };
    lines.push(("attempt", format!("{}{recovered}", record.attempt)));
    lines.push(("fence", record.fence.to_string()));
    lines.push((
        "on crash",
        match record.on_crash {
            OnCrash::Rerun => "run again".to_owned(),
            OnCrash::InDoubt => "in doubt: ask a person".to_owned(),
        },
    ));
    lines.push(("fingerprint", if record.fingerprint.is_some() { "yes" } else { "no" }.to_owned()));
    lines.push(("created", ago(record.created_at)));
    if matches!(record.state, State::InFlight | State::InDoubt) {
        lines.push(("lease until", ago(record.lease_until)));
    }
    if record.state == State::Released {
        lines.push(("due", ago(record.retry_at)));
    }
    if let Some(at) = record.completed_at {
        lines.push((output::state_word(record.state), ago(at)));
    }
    lines.push(("kept", span(record.ttl)));
    lines.push((
        "until",
        record.expires_at.map_or_else(|| "for ever, or until it is resolved".to_owned(), ago),
    ));
    if result.is_some() {
        lines.push(("result", output::remark(listed, now)));
    }
    lines
}
