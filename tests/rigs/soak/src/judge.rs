//! Checks the effects and answers for violations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::worker::{ANSWERS, CallError, EFFECTS, ENDS, Fate, Shared, call, is_careful};
use crate::{Failure, LANES};

/// The last answer to each key.
pub(crate) type Finals = BTreeMap<u32, Result<String, CallError>>;

/// Calls every key once more. All earlier answers, except unrecorded ones, must equal these answers.
pub(crate) async fn settle(shared: &Arc<Shared>, keys: u32) -> Finals {
    let mut finals = BTreeMap::new();
    for chunk in (0..keys).collect::<Vec<_>>().chunks(LANES) {
        let calls = chunk.iter().map(|&key| call(shared, key, Fate::patient(shared.lease * 20)));
        finals.extend(chunk.iter().copied().zip(join_all(calls).await));
    }
    finals
}

/// How often each thing happened, and the violations.
#[derive(Default)]
pub(crate) struct Report {
    counts: BTreeMap<String, usize>,
    pub(crate) violations: Vec<String>,
}

/// The names of the counts. Some of them need an explanation:
///
/// * `unrecorded`: answers whose result was not recorded yet; `recorded_late`: unrecorded answers whose
///   result was recorded later; `given_up`: results that a worker gave up recording;
/// * `failed`: bodies that failed; `not_due`: calls that came before their key was due again;
/// * `drained` and `left`: workers that got SIGTERM, and drained completely or left something unfinished;
/// * `takeovers`: repeated runs.
const COUNTED: &str = "effects executed replays refused store_errors unrecorded recorded_late given_up timed_out failed \
                       not_due drained left dropped panicked in_doubt takeovers";

/// Compares the ledger and the answers with the final answers.
pub(crate) fn judge(shared: &Shared, finals: &Finals) -> Result<Report, Failure> {
    let mut report = Report::default();
    for (key, answer) in finals {
        match answer {
            Ok(_) => {}
            Err(CallError::Idem(idem::Error::InDoubt { .. })) if is_careful(*key) => {
                report.add("in_doubt", 1);
            }
            Err(error) => report.violations.push(format!("key {key} has no result: {error}")),
        }
    }
    report.read_effects(&shared.ledger.read(EFFECTS)?, shared.backoff().start)?;
    report.read_answers(&shared.ledger.read(ANSWERS)?, finals)?;
    shared.ledger.read(ENDS)?.iter().for_each(|end| report.add(end, 1));
    Ok(report)
}

/// One run of a body.
#[derive(Debug, Default)]
struct Run {
    attempt: u32,
    fence: u64,
    /// `Context::recovered`: an earlier attempt may have had its effect.
    recovered: bool,
    /// When the run began, in milliseconds since the Unix epoch.
    begun: u64,
    /// When the run failed, if it did.
    failed: Option<u64>,
}

impl Report {
    fn add(&mut self, what: &str, times: usize) {
        *self.counts.entry(what.to_owned()).or_default() += times;
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, serde_json::Value)> {
        COUNTED.split(' ').map(|what| (what.to_owned(), self.count(what).into()))
    }

    /// Reads the runs. A key whose body failed is not due before `backoff` has passed.
    fn read_effects(&mut self, lines: &[String], backoff: Duration) -> Result<(), Failure> {
        let mut runs: BTreeMap<u32, Vec<Run>> = BTreeMap::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [key, attempt, fence, how, at] = words[..] else {
                return Err(format!("the ledger has a broken line: {line:?}").into());
            };
            let (attempt, fence, at) = (attempt.parse()?, fence.parse()?, at.parse()?);
            let of_key = runs.entry(key.parse()?).or_default();
            if how == "failed" {
                self.add("failed", 1);
                let failed = of_key.iter_mut().find(|run| run.fence == fence);
                failed.ok_or("a run failed that had not begun")?.failed = Some(at);
            } else {
                self.add("effects", 1);
                of_key.push(Run { attempt, fence, recovered: how == "1", begun: at, failed: None });
            }
        }
        for (key, mut begun) in runs {
            begun.sort_unstable_by_key(|run| (run.attempt, run.fence));
            self.add("takeovers", begun.len() - 1);
            self.violations.extend(faults(key, &begun, backoff));
        }
        Ok(())
    }

    fn read_answers(&mut self, lines: &[String], finals: &Finals) -> Result<(), Failure> {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [key, how, answer] = words[..] else {
                return Err(format!("the log of answers has a broken line: {line:?}").into());
            };
            let key: u32 = key.parse()?;
            match how {
                // This outcome tells the caller that other callers may get another value, so the answer is
                // not compared.
                "unrecorded" => {
                    self.add("unrecorded", 1);
                    let last = finals.get(&key).and_then(|last| last.as_deref().ok());
                    self.add("recorded_late", usize::from(last == Some(answer)));
                    continue;
                }
                "executed" | "timed_out" | "not_due" | "dropped" | "panicked" => self.add(how, 1),
                "replayed" => self.add("replays", 1),
                "in_flight" | "lease_lost" => self.add("refused", 1),
                // `read_effects` counts the failures, from the ledger.
                "failed" => {}
                "in_doubt" if is_careful(key) => self.add("refused", 1),
                // The injected faults and the outages cause these answers. So does a process that is stopped
                // while it holds SQLite's lock, because then the operations of the other processes time out.
                "store" => self.add("store_errors", 1),
                other => self.violations.push(format!("key {key} was answered {other}")),
            }
            let last = finals.get(&key).and_then(|last| last.as_deref().ok());
            if answer != "-" && last != Some(answer) {
                self.violations.push(format!("key {key} was answered {answer}, and in the end {last:?}"));
            }
        }
        Ok(())
    }
}

/// The violations among the runs of one key. The runs are in the order of their attempts.
fn faults(key: u32, begun: &[Run], backoff: Duration) -> Vec<String> {
    let mut faults = Vec::new();
    let distinct: BTreeSet<u32> = begun.iter().map(|run| run.attempt).collect();
    if distinct.len() != begun.len() {
        faults.push(format!("key {key} started one attempt twice: {begun:?}"));
    }
    if !begun.is_sorted_by(|one, next| one.fence < next.fence) {
        faults.push(format!("key {key} has fences that do not rise: {begun:?}"));
    }
    let backoff = u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX);
    for pair in begun.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        match one.failed {
            // The earlier run did not report a failure, so the next run must be `recovered`.
            None if !next.recovered => {
                faults.push(format!("key {key} ran again without `recovered`: {begun:?}"));
            }
            // The next run is not `recovered`, so the store knows of the failure and must keep the backoff.
            // The check allows a difference of 20 ms between two clocks.
            Some(failed) if !next.recovered && next.begun + 20 < failed + backoff => {
                faults.push(format!("key {key} ran again before it was due: {begun:?}"));
            }
            _ => {}
        }
    }
    if is_careful(key) && begun.len() > 1 {
        faults.push(format!("key {key} ran more than once under in_doubt: {begun:?}"));
    }
    faults
}
