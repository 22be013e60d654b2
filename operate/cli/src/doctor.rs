//! `idem doctor`: checks whether the store's server can keep the guarantees.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use idem_core::inspection::{Finding, Inspection, Standing};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, OnCrash, Owner, Release, ReleaseCause, Renew, Resolution, StoredResult,
    Timestamp, Verdict,
};
use idem_core::{RecordKey, Store as _, StoreError, listing};
use idem_operate_kit::text::{random_hex, safe, span};
use idem_operate_kit::{Access, Error, Kind, walk};
use idem_runtime::DynStore;
use serde_json::json;

use super::end::{Answer, End};
use super::output::Output;

/// The largest difference between the store's clock and this machine's clock that `doctor` accepts. `doctor`
/// reports a larger difference, because people compare logs by their times.
const FAR: Duration = Duration::from_secs(1);

/// How many rounds of operations are measured.
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
    let times = if doctor.read_only { Vec::new() } else { medians(store).await? };
    let worst = found.findings.iter().map(|finding| finding.standing).max().unwrap_or(Standing::Fine);
    print(&found, &times, output)?;
    Ok(if worst >= Standing::Weak { End::Weak } else { End::Done })
}

/// Compares the store's clock with the clock of this machine.
async fn clock(store: &DynStore, found: &mut Inspection) -> Result<(), StoreError> {
    if found.now.is_none() {
        return Ok(());
    }
    let here =
        || Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let before = here();
    let there = walk::now(store).await?;
    let after = here();
    // The store read its clock between `before` and `after`, so this is the smallest possible difference.
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

/// How long each operation took in each round.
#[derive(Default)]
struct Times(BTreeMap<&'static str, Vec<Duration>>);

impl Times {
    async fn of<T>(
        &mut self,
        operation: &'static str,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        let done = act.await;
        self.0.entry(operation).or_default().push(begin.elapsed());
        done
    }
}

/// The median time of each operation on a temporary key, which is removed again.
async fn medians(store: &DynStore) -> Answer<Vec<(&'static str, Duration)>> {
    let invalid = || Error::new(Kind::Unusable, "the temporary key is invalid");
    let key = listing::name("idem.doctor", &random_hex()).ok_or_else(invalid)?;
    let mut times = Times::default();
    for number in 1..=ROUNDS {
        // Only the last round uses `in_doubt`, because an interrupted round under `in_doubt` leaves a key
        // that never expires.
        let on_crash = if number == ROUNDS { OnCrash::InDoubt } else { OnCrash::Rerun };
        let ended = round(store, &key, on_crash, &mut times).await;
        // Removes the key even after a failed round.
        let forgotten = times.of("forget", store.forget(&key)).await;
        ended?;
        forgotten?;
    }
    let median = |mut each: Vec<Duration>| {
        each.sort_unstable();
        each.get(each.len() / 2).copied().unwrap_or_default()
    };
    Ok(times.0.into_iter().map(|(operation, each)| (operation, median(each))).collect())
}

async fn round(store: &DynStore, key: &RecordKey, on_crash: OnCrash, times: &mut Times) -> Answer<()> {
    let owner = Owner::random();
    let claim = Claim::new(owner, Duration::from_secs(30), Duration::from_secs(60)).with_on_crash(on_crash);
    let ClaimAnswer::Granted(grant) = times.of("claim", store.claim(key, &claim)).await? else {
        let text = "the store did not grant a new key: does another program use the scope `idem.doctor`?";
        return Err(Error::new(Kind::Unusable, text));
    };
    let (renew, release) = (
        Renew::new(owner, grant.fence, claim.lease),
        Release::new(owner, grant.fence, ReleaseCause::Abandoned),
    );
    times.of("renew", store.renew(key, &renew)).await?;
    times.of("get", store.get(key)).await?;
    times.of("release", store.release(key, &release)).await?;
    if on_crash == OnCrash::InDoubt {
        times.of("resolve", store.resolve(key, &Resolution::Release)).await?;
    }
    let again = claim.clone().with_owner(Owner::random());
    if let ClaimAnswer::Granted(grant) = store.claim(key, &again).await? {
        let value = StoredResult::Value(b"null".to_vec().into());
        let complete = Complete::new(again.owner, grant.fence, Verdict::Completed, value, claim.ttl);
        times.of("complete", store.complete(key, &complete)).await?;
    }
    times.of("replay", store.claim(key, &claim.with_owner(Owner::random()))).await?;
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

fn print(found: &Inspection, times: &[(&'static str, Duration)], output: &mut Output) -> Answer<()> {
    let object = |finding: &Finding| json!({ "standing": word(finding.standing), "subject": finding.subject, "text": finding.text });
    let (version, findings) =
        (env!("CARGO_PKG_VERSION"), found.findings.iter().map(object).collect::<Vec<_>>());
    if output.is_json() {
        let seconds: BTreeMap<_, _> = times.iter().map(|(name, took)| (*name, took.as_secs_f64())).collect();
        let all =
            json!({ "idem": version, "server": found.server, "findings": findings, "seconds": seconds });
        return output.line(all.to_string());
    }
    let server = if found.server.is_empty() { "of unknown kind" } else { &found.server };
    output.line(format!("idem {version}, server {}", safe(server)))?;
    output.objects(["standing", "subject", "text"], &findings)?;
    if !times.is_empty() {
        output.line("")?;
        let row = |(name, took): &(&str, Duration)| {
            [(*name).to_owned(), format!("{:.2} ms", took.as_secs_f64() * 1e3)]
        };
        output.table(["OPERATION", "MEDIAN"], &times.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(())
}
