//! `idem doctor`: checks whether the store's server can keep the guarantees.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use idem_core::inspection::{Inspection, Standing};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, OnCrash, Owner, Release, ReleaseCause, Renew, Resolution, StoredResult,
    Timestamp, Verdict,
};
use idem_core::{RecordKey, Store as _, StoreError, listing};
use idem_operate_kit::text::{random_hex, safe, span};
use idem_operate_kit::{Access, walk};
use idem_runtime::DynStore;
use serde_json::{Value, json};

use super::end::{Answer, End, Trouble};
use super::output::Output;

/// A clock that differs by more than this is reported: people compare logs by their times.
const FAR: Duration = Duration::from_secs(1);

/// How often each operation is timed.
const ROUNDS: usize = 5;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Write nothing: do not time operations on a temporary key
    #[arg(long)]
    read_only: bool,
}

pub(crate) async fn run(doctor: &Doctor, access: &Access, output: &mut Output) -> Answer {
    let store = &access.store;
    let mut found = store.inspect().await?;
    let layers = access.layers().await?;
    let layers = match (layers.encrypted, layers.digested) {
        (true, true) => "results are encrypted, and keys are digests",
        (true, false) => "results are encrypted",
        (false, true) => "keys are digests",
        (false, false) => "no mark of encryption or of digests",
    };
    found.find(Standing::Fine, "layers", layers.to_owned());
    clock(store, &mut found).await?;
    let times = if doctor.read_only { Vec::new() } else { times(store).await? };
    let worst = found.findings.iter().map(|finding| finding.standing).max().unwrap_or(Standing::Fine);
    if output.is_json() {
        output.line(shown(&found, &times).to_string())?;
    } else {
        print(&found, &times, output)?;
    }
    Ok(if worst >= Standing::Weak { End::Weak } else { End::Done })
}

/// Compares the store's clock with this machine's.
async fn clock(store: &DynStore, found: &mut Inspection) -> Result<(), StoreError> {
    if found.now.is_none() {
        return Ok(());
    }
    let here =
        || Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let before = here();
    let there = walk::now(store).await?;
    let after = here();
    // The store read its clock somewhere in between.
    let apart = before.since(there).max(there.since(after));
    let (standing, text) = match apart {
        Duration::ZERO => (Standing::Fine, "equal to this machine's".to_owned()),
        apart if apart <= FAR => (Standing::Fine, format!("{} from this machine's", span(apart))),
        apart => (
            Standing::Weak,
            format!(
                "{} from this machine's: only the store's clock decides about leases, but times in logs cannot be \
                 compared, and one of the two clocks is wrong",
                span(apart)
            ),
        ),
    };
    found.find(standing, "clock", text);
    Ok(())
}

/// The median time of each operation, on a key that is removed again.
async fn times(store: &DynStore) -> Answer<Vec<(&'static str, Duration)>> {
    let invalid = || Trouble::new(End::Unusable, "the temporary key is invalid");
    let key = listing::name("idem.doctor", &random_hex()).ok_or_else(invalid)?;
    let mut times: Vec<(&'static str, Vec<Duration>)> = Vec::new();
    let mut ended = Ok(());
    for number in 1..=ROUNDS {
        // Only the last round uses `in_doubt`: a key that is interrupted under it would stay for ever.
        let on_crash = if number == ROUNDS { OnCrash::InDoubt } else { OnCrash::Rerun };
        ended = round(store, &key, on_crash, &mut times).await;
        // Removes the key also after a failure.
        let begin = Instant::now();
        let forgotten = store.forget(&key).await;
        note(&mut times, "forget", begin);
        if ended.is_err() || forgotten.is_err() {
            ended = ended.and(forgotten.map(drop).map_err(Trouble::from));
            break;
        }
    }
    ended?;
    Ok(times
        .into_iter()
        .map(|(name, mut each)| {
            each.sort_unstable();
            (name, each.get(each.len() / 2).copied().unwrap_or_default())
        })
        .collect())
}

fn note(times: &mut Vec<(&'static str, Vec<Duration>)>, name: &'static str, begin: Instant) {
    let took = begin.elapsed();
    match times.iter_mut().find(|(known, _)| *known == name) {
        Some((_, each)) => each.push(took),
        None => times.push((name, vec![took])),
    }
}

async fn round(
    store: &DynStore,
    key: &RecordKey,
    on_crash: OnCrash,
    times: &mut Vec<(&'static str, Vec<Duration>)>,
) -> Answer<()> {
    let owner = Owner::random();
    let claim = Claim::new(owner, Duration::from_secs(30), Duration::from_secs(60)).with_on_crash(on_crash);
    let value = || StoredResult::Value(b"null".to_vec().into());
    let mut begin = Instant::now();
    let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await? else {
        return Err(Trouble::new(
            End::Unusable,
            "the store did not grant a new key: does another program use the scope `idem.doctor`?",
        ));
    };
    note(times, "claim", begin);
    let fence = grant.fence;
    begin = Instant::now();
    store.renew(key, &Renew::new(owner, fence, claim.lease)).await?;
    note(times, "renew", begin);
    begin = Instant::now();
    store.get(key).await?;
    note(times, "get", begin);
    begin = Instant::now();
    let cause = ReleaseCause::Abandoned;
    store.release(key, &Release::new(owner, fence, cause)).await?;
    note(times, "release", begin);
    if on_crash == OnCrash::InDoubt {
        begin = Instant::now();
        store.resolve(key, &Resolution::Release).await?;
        note(times, "resolve", begin);
    }
    let again = claim.clone().with_owner(Owner::random());
    if let ClaimAnswer::Granted(grant) = store.claim(key, &again).await? {
        let (owner, fence, verdict, ttl) = (again.owner, grant.fence, Verdict::Completed, claim.ttl);
        begin = Instant::now();
        store.complete(key, &Complete::new(owner, fence, verdict, value(), ttl)).await?;
        note(times, "complete", begin);
    }
    begin = Instant::now();
    store.claim(key, &claim.with_owner(Owner::random())).await?;
    note(times, "replay", begin);
    Ok(())
}

const fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Fine => "fine",
        Standing::Unknown => "unknown",
        Standing::Weak => "weak",
        _ => "broken",
    }
}

fn shown(found: &Inspection, times: &[(&'static str, Duration)]) -> Value {
    let findings: Vec<Value> = found
        .findings
        .iter()
        .map(|finding| json!({ "standing": word(finding.standing), "subject": finding.subject, "text": finding.text }))
        .collect();
    let times: serde_json::Map<String, Value> =
        times.iter().map(|(name, took)| ((*name).to_owned(), json!(took.as_secs_f64()))).collect();
    json!({
        "idem": env!("CARGO_PKG_VERSION"),
        "server": found.server,
        "findings": findings,
        "seconds": times,
    })
}

fn print(found: &Inspection, times: &[(&'static str, Duration)], output: &mut Output) -> std::io::Result<()> {
    let server = if found.server.is_empty() { "of unknown kind" } else { &found.server };
    output.line(format!("idem {}, server {}", env!("CARGO_PKG_VERSION"), safe(server)))?;
    let rows: Vec<_> = found
        .findings
        .iter()
        .map(|finding| [word(finding.standing).to_owned(), safe(&finding.subject), safe(&finding.text)])
        .collect();
    output.table(["", "WHAT", "HOW"], &rows)?;
    if !times.is_empty() {
        output.line("")?;
        let rows: Vec<_> = times
            .iter()
            .map(|(name, took)| [(*name).to_owned(), format!("{:.2} ms", took.as_secs_f64() * 1e3)])
            .collect();
        output.table(["OPERATION", "MEDIAN"], &rows)?;
    }
    Ok(())
}
