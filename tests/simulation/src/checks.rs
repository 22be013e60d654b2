//! The sentences of the guarantees, as invariants.
//!
//! Each check compares what bodies and callers saw, and what the store's records became, with one sentence of
//! `docs/guarantees.md` or of another page. The message of a violation is that sentence. The table in
//! `docs/internals/simulation.md` lists the sentences.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idem_core::StoreErrorKind;
use idem_core::protocol::{self, Record, State as RecordState, StoredResult, Verdict};
use idem_runtime::{Context, Error, Outcome};
use tokio::time::Instant;

use crate::body::{Failure, Receipt};
use crate::caller::Site;
use crate::note;
use crate::plan::{NO_ARGUMENT, OperationPlan, Way};
use crate::world::{Ended, ProcessId, Run, RunId, State, World};

pub const AT_MOST_ONCE: &str =
    "`on_crash = \"in_doubt\"`: the body starts at most once; a crash is reported, never repeated";
pub const ONCE: &str = "the body starts once, and once more after each crash";
pub const ONE_RESULT: &str = "exactly one result is recorded; every caller sees it";
pub const RECOVERED: &str = "after a crash `context().recovered()` is true in the next run";
pub const NOT_RECOVERED: &str =
    "`recovered()` is false if the previous run returned an error: an outage alone makes no `recovered()`";
pub const NO_DOUBT: &str =
    "an error that the body returns is not a crash, and an outage alone makes no doubt";
pub const FOUND: &str = "where `recover` finds the result, the body does not run";
pub const ASKED: &str =
    "what happened is not known after a crash: `recover` is called before the body runs again";
pub const ALL_STEPS: &str = "`recover` is called with the recorded steps";
pub const STEP: &str = "a step never runs again after its record was acknowledged";
pub const STEP_VALUE: &str =
    "a body gets the value of a step when it is recorded, and every later run gets that value";
pub const STEP_OVER: &str = "once a call is over, nothing that it carried starts a step";
pub const STEP_NESTED: &str = "no step begins inside a step";
pub const STEP_OUTSIDE: &str =
    "a step is recorded, or is an error: outside of any call and in a transaction its closure does not run";
pub const STEP_FINISHED: &str = "a step that has ended is recorded before its key is released: when the release is tried again, so is its record";
pub const STEP_LOOSE: &str = "an error after a step that could not be recorded counts as a crash";
pub const ATTEMPTS: &str = "`max_attempts` counts starts";
pub const UNUSED: &str = "an attempt that was not used is not counted";
pub const LEASE: &str = "a body keeps its lease while its process runs and the store answers";
pub const HELD: &str = "a body and a step start under a lease that their call holds";
pub const TIMEOUT: &str = "`timeout`: the body is dropped after it, also one that runs unprotected";
pub const THROWN_AWAY: &str = "the value of a body that succeeded is never thrown away: it is recorded, or the hook for unrecorded results gets it";
pub const STORED: &str = "a value that its caller takes for stored is stored";
pub const REENTRANT: &str = "only a call inside the body that holds its key waits for itself";
pub const FREE: &str =
    "no claim is left behind: once everything works again, a key has a result, is in doubt, or can be called";
pub const FAIL_OPEN: &str = "a body runs unprotected only where the claim failed and the policy says so";
pub const DUE: &str = "`retry_after`: a key whose body failed is not called before it is due";
pub const BOUNDED: &str = "a key whose body failed is due within 100 years";
pub const EXPLAINED: &str = "a call is refused for a reason that is there";
pub const PRIVATE: &str = "no error text and no `Debug` output has a key or a result";
pub const ACKNOWLEDGED: &str = "a message is acknowledged only when its value is recorded, or cannot be";
pub const DRAINED: &str = "`drain` waits for all that is to be recorded or released";
pub const ANSWERED: &str = "over HTTP, the answer of a handler is never discarded because recording is slow";
pub const TRANSACTION: &str =
    "`transaction`: the effects are committed exactly once, if and only if the result is";

pub const FINGERPRINT: &str = "`fingerprint`: a call with another one gets no result";
pub const STEP_INPUT: &str = "a step whose input has changed is not replayed";
pub const KEPT: &str =
    "a value that `record_if` refuses is not recorded, and neither is an error of `recover`";
pub const GIVEN_UP: &str = "a result is given up only when another call has its key";
pub const UNASKED: &str = "`recover` is called only if it is not known what happened";
pub const GOES_ON: &str = "`in_doubt`: a worker that is alive after its lease ran out continues";
pub const WAITED: &str = "`wait`: a call waits that long before it is refused, and not longer than it must";
pub const TAKEN_OVER: &str = "a body is dropped when the store says that another call has its key";

/// An error of `recover` names this number in place of a run.
pub const OF_RECOVER: RunId = OPERATOR + 1;

/// An operator's result names this number in place of a run.
pub const OPERATOR: RunId = 1_000_000_000;

/// The longest time until a waiter sees what its own process did.
const AT_ONCE: Duration = Duration::from_millis(30);

/// When a waiter is refused, the store's last answer is at most this old, plus the time of a request.
const ANSWER_IS_OLD: Duration = Duration::from_secs(1);

/// The longest time until a waiter sees what another process did.
const SOON: Duration = Duration::from_millis(550);

/// The longest time from the last fault until all background work of a call has ended.
fn grace(operation: &OperationPlan) -> Duration {
    Duration::from_millis(operation.store_timeout) + Duration::from_secs(12)
}

impl World {
    /// What an error of a body means: over HTTP under `in_doubt`, every 5xx counts as a crash.
    pub fn error_means(&self, number: usize) -> Ended {
        let operation = &self.plan.operations[number];
        if operation.http && operation.in_doubt { Ended::Dropped } else { Ended::Error }
    }

    /// Notes that a body starts, and checks that it may start.
    pub fn begin_run(&self, started: &Site, context: Option<&Context>) -> RunId {
        let operation = &self.plan.operations[started.number];
        let mut state = self.lock();
        let id = state.runs.len();
        let fence = context.and_then(Context::fence).map(|fence| fence.get());
        let in_transaction = matches!(started.way, Way::Transaction { .. });
        state.runs.push(Run {
            key: started.number,
            life: None,
            process: started.process,
            fence,
            began: Instant::now(),
            ended: None,
            loose_steps: BTreeSet::new(),
            is_within_step: false,
            ended_steps: Vec::new(),
            inputs: std::collections::BTreeMap::new(),
            argument: started.argument,
            blocked: Duration::ZERO,
            timeout: operation.timeout.map(Duration::from_millis),
            retry_after: 0,
            was_unrecorded: false,
            in_transaction,
            way: started.way,
            had_effect: false,
            parent: started.parent,
            has_deadline: started.has_deadline,
        });
        let how = context.map_or("without a call".into(), |context| {
            let recovered = if context.recovered() { ", recovered" } else { "" };
            let unprotected = if fence.is_some() { "" } else { ", unprotected" };
            format!("attempt {}{recovered}{unprotected}", context.attempt())
        });
        note!(state, "process {}: run {id} of key {} starts ({how})", started.process, started.number);
        match (context, fence) {
            _ if in_transaction => {}
            (Some(context), Some(fence)) => {
                state.check_start(operation, id, fence, context);
                state.check_takeover(id, started, fence);
            }
            _ => state.check_unprotected(operation, id, started.way),
        }
        id
    }
}

impl State {
    fn check_unprotected(&mut self, operation: &OperationPlan, id: RunId, way: Way) {
        let run = &self.runs[id];
        let patience = Duration::from_millis(operation.store_timeout + operation.wait + 3_000);
        let failed = run.began.checked_sub(patience).is_some_and(|since| !self.is_calm(run.process, since));
        // With a deadline, the lease may be over before the answer to the claim arrives.
        let failed = failed || run.has_deadline;
        let may = way == Way::MissingKey || (operation.fail_open && (failed || self.near_start(patience)));
        if !may {
            self.violate(FAIL_OPEN, format!("run {id}"));
        }
    }

    fn near_start(&self, patience: Duration) -> bool {
        Instant::now().checked_sub(patience).is_none_or(|since| {
            self.processes.iter().any(|process| process.disturbed.is_some_and(|at| at >= since))
        })
    }

    fn check_start(&mut self, operation: &OperationPlan, id: RunId, fence: u64, context: &Context) {
        let number = self.runs[id].key;
        let process = self.runs[id].process;
        let Some(granted) = self.keys[number].grants.get_mut(&fence) else {
            return self.violate(ONCE, format!("run {id} has a fence that was never granted"));
        };
        let (life, at, claimant) = (granted.life, granted.at, granted.process);
        if let Some(other) = granted.started.replace(id) {
            self.violate(ONCE, format!("runs {other} and {id} have one grant"));
        }
        self.runs[id].life = Some(life);
        if claimant != process {
            self.violate(ONCE, format!("run {id} has a grant of another process"));
        }
        let earlier = self.keys[number].lives[life].runs.clone();
        self.check_held(id, number, fence, at);
        // Another call may have had the key since an operator resolved the doubt.
        let is_overtaken = self.resolved_meanwhile(number, life, fence).is_some();
        if !is_overtaken {
            self.check_earlier(operation, id, life, &earlier);
            self.check_recovered(id, number, life, &earlier, context.recovered());
        }
        let starts = u32::try_from(earlier.len()).unwrap_or(u32::MAX) + 1;
        // After a jump of the clock, a later attempt may have run before the claim of this run was answered.
        let steady = self.jumped.is_none_or(|jump| jump < at);
        let detail = format!("run {id} is attempt {}, and {starts} have started", context.attempt());
        if steady && !is_overtaken && context.attempt() < starts {
            self.violate(ATTEMPTS, detail.clone());
        }
        let grants = self.keys[number]
            .grants
            .values()
            .filter(|granted| granted.life == life && granted.started.is_none());
        let unused = u32::try_from(grants.count()).unwrap_or(u32::MAX);
        if context.attempt() > starts + unused {
            self.violate(UNUSED, detail);
        }
        if operation.max_attempts.is_some_and(|most| starts > most) {
            self.violate(ATTEMPTS, format!("run {id} is the start number {starts}"));
        }
        self.keys[number].lives[life].runs.push(id);
        self.keys[number].lives[life].is_doubted_by_recover = false;
    }

    /// Checks that a waiter gets a key at once if the process of the waiter has released the key.
    fn check_takeover(&mut self, id: RunId, started: &Site, fence: u64) {
        let Some(granted) = self.keys[started.number].grants.get(&fence) else { return };
        let Some((at, process)) = granted.freed else { return };
        // With a deadline, a claim may be answered after its lease has ended. That is an error, and a
        // consumer pauses after an error.
        let waited = process == started.process
            && started.called < at
            && !started.has_deadline
            && !self.has_blocked(process);
        // This waiter may share a request that another waiter sent earlier. So the check applies only if
        // nothing has gone wrong since the earliest time at which that request may have been sent.
        let patience = Duration::from_millis(self.plan.operations[started.number].store_timeout);
        let Some(since) = started.called.checked_sub(patience + SOON) else { return };
        if waited && granted.at - at > AT_ONCE && self.is_calm(process, since) {
            self.violate(WAITED, format!("run {id} gets its key {:?} after the release", granted.at - at));
        }
    }

    /// Checks a run when its body or one of its steps begins: its lease must still run by the store's clock,
    /// and no other grant may have the key. Does not check a run if its process stood still or the clock
    /// jumped since the grant. Also does not check it if an operator decided about the key, or a record of
    /// the key was deleted.
    fn check_held(&mut self, id: RunId, number: usize, fence: u64, granted: Instant) {
        let process = &self.processes[self.runs[id].process];
        let ran = process.stood_still.is_none_or(|at| at < granted) && process.stopped_until.is_none();
        let steady = self.jumped.is_none_or(|at| at < granted);
        let now = self.now();
        let key = &self.keys[number];
        // `None` if the record has another fence. An operator may have deleted or changed the record.
        let record = key.record.as_ref().filter(|record| record.fence.get() == fence);
        let is_held =
            record.is_none_or(|record| record.state != RecordState::InFlight || record.lease_until > now);
        let taken = key
            .record
            .as_ref()
            .is_some_and(|record| record.fence.get() > fence && record.state == RecordState::InFlight);
        let forgotten = key.lives.iter().any(|life| life.operator);
        if ran && steady && !forgotten && (!is_held || taken) {
            self.violate(HELD, format!("run {id}"));
        }
    }

    fn check_earlier(&mut self, operation: &OperationPlan, id: RunId, life: usize, earlier: &[RunId]) {
        let number = self.runs[id].key;
        let seen = &self.keys[number].lives[life];
        let (cleared, found, resolved) = (seen.cleared, seen.found, seen.resolved);
        let is_recorded = seen.recorded.is_some();
        let granted = self.runs[id].fence.and_then(|fence| self.keys[number].grants.get(&fence));
        // An operator may have written the result after this grant, while the grant's key was in doubt.
        let was_resolved = granted.is_some_and(|granted| resolved.is_some_and(|at| granted.at < at));
        if granted.is_some_and(|granted| self.jumped.is_some_and(|at| at >= granted.at)) {
            // The jump of the clock may have ended the lease of this run early, and another call may have had
            // the key since.
            return;
        }
        if found {
            self.violate(FOUND, format!("run {id} starts"));
        }
        if is_recorded && !was_resolved {
            self.violate(ONE_RESULT, format!("run {id} starts after the result was recorded"));
        }
        for other in earlier.iter().skip(cleared).copied() {
            let run = &self.runs[other];
            if self.is_resolved(number, life, run) {
                continue;
            }
            let crashed = run.crashed();
            let ended = run.ended;
            if crashed && operation.in_doubt {
                self.violate(AT_MOST_ONCE, format!("run {other} did not end, and run {id} starts"));
            } else if crashed && operation.recover.is_some() {
                self.violate(ASKED, format!("run {other} did not end, and run {id} starts"));
            }
            if let Some((_, Ended::Value | Ended::Unstorable | Ended::Terminal)) = ended {
                if operation.in_doubt {
                    self.violate(AT_MOST_ONCE, format!("run {other} returned, and run {id} starts"));
                } else if self.is_settled(operation, other) && !self.runs[other].was_unrecorded {
                    self.violate(ONE_RESULT, format!("run {other} returned, and run {id} starts"));
                }
            }
            if let Some((at, Ended::Error)) = self.runs[other].ended {
                let due = at + Duration::from_millis(self.runs[other].retry_after.min(86_400_000 * 365));
                let is_last = earlier.last() == Some(&other);
                if is_last
                    && Instant::now() + Duration::from_millis(1) < due
                    && self.jumped.is_none()
                    && self.released_in_order(other)
                {
                    self.violate(DUE, format!("run {id} starts too early after run {other}"));
                }
            }
        }
    }

    /// Whether this run was free to release its key when it ended: all its steps are recorded, it has no
    /// deadline, and nothing went wrong in its process or the store since it began.
    fn released_in_order(&self, run: RunId) -> bool {
        let run = &self.runs[run];
        run.loose_steps.is_empty() && !run.has_deadline && self.is_calm(run.process, run.began)
    }

    /// Whether this run ended so long ago, with no fault since, that all its background work has ended.
    fn is_settled(&self, operation: &OperationPlan, run: RunId) -> bool {
        let run = &self.runs[run];
        let Some(since) = Instant::now().checked_sub(grace(operation)) else { return false };
        run.ended.is_some_and(|(at, _)| at < since) && self.is_calm(run.process, since)
    }

    /// Whether the outcome of a run of this life may be unknown to the store. A life lasts from the first
    /// claim of an absent key to the end of its record.
    fn is_uncertain(&self, operation: &OperationPlan, number: usize, life: usize) -> bool {
        let seen = &self.keys[number].lives[life];
        let runs = seen.runs.iter().skip(seen.cleared).copied();
        let mut unsure = runs.filter(|run| {
            let loose = !self.runs[*run].loose_steps.is_empty();
            self.runs[*run].crashed()
                || self.runs[*run].was_unrecorded
                || loose
                || !self.is_settled(operation, *run)
        });
        // If the clock has jumped, any outcome may be unknown: a record may expire by a jump, and live again
        // after the next jump.
        let jumped = self.jumped.is_some();
        let since = Instant::now().checked_sub(grace(operation)).filter(|_| !jumped);
        let Some(since) = since else { return true };
        let taken_until = self.keys[number].taken_until;
        let mut unused = self.keys[number].grants.values().filter(|granted| {
            // While a transaction has the key, no process can find out whether its claim was granted.
            let is_hidden = taken_until.is_some_and(|until| until >= granted.at);
            granted.life == life
                && granted.started.is_none()
                && (granted.is_late
                    || is_hidden
                    || granted.at >= since
                    || !self.is_calm(granted.process, since))
        });
        seen.is_unsure || seen.is_doubted_by_recover || unsure.next().is_some() || unused.next().is_some()
    }

    fn check_recovered(&mut self, id: RunId, number: usize, life: usize, earlier: &[RunId], recovered: bool) {
        let cleared = self.keys[number].lives[life].cleared;
        // The fences say which run came before. After a jump of the clock, the body of an earlier grant may
        // start later than the body of a later grant.
        let is_before = |run: &RunId| self.runs[*run].fence < self.runs[id].fence;
        let last = earlier.iter().skip(cleared).copied().rfind(is_before);
        if let Some(last) = last
            && self.runs[last].crashed()
            && !self.is_resolved(number, life, &self.runs[last])
            && !recovered
        {
            self.violate(RECOVERED, format!("run {last} did not end, and run {id} is not recovered"));
        }
    }

    /// Checks a granted claim. There must be a reason if the grant is `recovered`, and a reason if the
    /// previous call lost its lease.
    pub fn check_grant(&mut self, number: usize, before: Option<&Record>, record: &Record) {
        let Some(before) = before else { return };
        let plan = self.plan.clone();
        let operation = &plan.operations[number];
        let life = self.keys[number].lives.len() - 1;
        let is_inherited = before.recovered || before.state == RecordState::InDoubt;
        if record.recovered && !is_inherited && !self.is_uncertain(operation, number, life) {
            self.violate(NOT_RECOVERED, format!("a grant of key {number} is recovered"));
        }
        // If the grant is recovered, its call took over from a run whose outcome nobody could know. The
        // outcome stays unknown until `recover` or an operator finds it out.
        self.keys[number].lives[life].is_unsure |= record.recovered;
        if before.state != RecordState::InFlight {
            return;
        }
        let Some(run) = self.keys[number].grants.get(&before.fence.get()).and_then(|granted| granted.started)
        else {
            return;
        };
        // The engine sends a renewal after a third of the lease. If the renewal fails, the engine sends it
        // again less than a sixth of the lease later.
        let lease = Duration::from_millis(operation.lease);
        let needed = self.now().since(before.lease_until) + lease / 2 + Duration::from_millis(100);
        let Some(since) = Instant::now().checked_sub(needed) else { return };
        if self.runs[run].ended.is_none()
            && !self.runs[run].has_deadline
            && self.is_calm(self.runs[run].process, since)
            && self.jumped.is_none()
        {
            self.violate(LEASE, format!("run {run} of key {number} lost it"));
        }
    }

    /// Checks a key in doubt: there must be a reason why the store cannot know what the runs of the key did.
    pub fn check_doubt(&mut self, plan: &OperationPlan, number: usize) {
        let key = &self.keys[number];
        let Some(record) = key.record.as_ref().filter(|record| record.state == RecordState::InDoubt) else {
            return;
        };
        let Some(life) = key.lives.len().checked_sub(1) else { return };
        // If a claim on a key in doubt was given back unused, the record has a fence that no grant has. Such
        // a doubt is not checked.
        if key.grants.contains_key(&record.fence.get()) && !self.is_uncertain(plan, number, life) {
            self.violate(NO_DOUBT, format!("key {number} is in doubt"));
        }
    }
}

impl World {
    /// Checks the answer that a caller got.
    pub fn answered(&self, caller: &Site, result: &Result<Receipt, Failure>, saw: Option<Outcome>) {
        let mut state = self.lock();
        let answer = match result {
            Ok(receipt) => format!("the value of run {}", receipt.run),
            Err(Failure::Idem(Some(error))) => error.kind().as_str().to_owned(),
            Err(Failure::Terminal { run }) => format!("the final error of run {run}"),
            Err(failure) => format!("{failure:?}"),
        };
        note!(state, "process {}: a caller of key {} gets {answer}", caller.process, caller.number);
        match result {
            Ok(receipt) => state.check_value(caller, receipt.run, Verdict::Completed, saw),
            Err(Failure::Terminal { run: OF_RECOVER }) => {}
            Err(Failure::Terminal { run }) => state.check_value(caller, *run, Verdict::Failed, saw),
            Err(Failure::Idem(Some(error))) => state.check_refusal(self, caller, error),
            Err(_) => {}
        }
    }
}

impl State {
    /// Checks a recorded result: the operation's policy must allow recording it.
    pub fn check_kept(&mut self, result: &StoredResult) {
        let StoredResult::Value(bytes) = result else { return };
        let is_pending = serde_json::from_slice::<Receipt>(bytes).is_ok_and(|receipt| receipt.pending);
        if is_pending || run_of(result) == Some(OF_RECOVER) {
            self.violate(KEPT, format!("{:?}", run_of(result)));
        }
    }

    /// Checks a run that is released as failed: each step that has ended must be recorded. The next call does
    /// not take such a release for a crash.
    pub fn check_released(&mut self, number: usize, fence: u64) {
        if let Some((run, name)) = self.unrecorded_step(number, fence) {
            self.violate(STEP_LOOSE, format!("step {name} of run {run}"));
        }
    }

    /// Checks a release that is sent again: each ended step must be recorded. Call this only if no step was
    /// under way when the release was last sent.
    pub fn check_steps_sent(&mut self, number: usize, fence: u64) {
        // If another call has the key, or the record is gone, the store refuses the steps each time.
        if self.keys[number].record.as_ref().is_none_or(|record| record.fence.get() != fence) {
            return;
        }
        if let Some((run, name)) = self.unrecorded_step(number, fence) {
            self.violate(STEP_FINISHED, format!("step {name} of run {run}"));
        }
    }

    /// A step that has ended in the run of this grant, and is not recorded.
    fn unrecorded_step(&self, number: usize, fence: u64) -> Option<(RunId, String)> {
        let granted = self.keys[number].grants.get(&fence)?;
        let run = granted.started?;
        let steps = &self.keys[number].lives[granted.life].steps;
        let is_recorded = |name: &String| steps.get(name).is_some_and(|step| step.recorded.is_some());
        Some((run, self.runs[run].ended_steps.iter().find(|name| !is_recorded(name))?.clone()))
    }

    /// Whether the record of this key has the result of this run.
    pub fn is_kept(&self, number: usize, run: RunId) -> bool {
        // The result does not count if `recover` found it in a later attempt.
        self.live(number)
            .filter(|record| self.runs.get(run).is_some_and(|run| run.fence == Some(record.fence.get())))
            .and_then(|record| record.result.as_ref())
            .is_some_and(|result| run_of(result) == Some(run))
    }
}

/// The run whose result this is.
pub fn run_of(result: &StoredResult) -> Option<RunId> {
    let StoredResult::Value(bytes) = result else { return None };
    // A response of the HTTP layer is framed, and its body is text.
    if let Some(at) = bytes.windows(4).position(|window| window == b"run=") {
        let digits = bytes[at + 4..].iter().take_while(|byte| byte.is_ascii_digit());
        return Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')));
    }
    if let Ok(receipt) = serde_json::from_slice::<Receipt>(bytes) {
        return Some(receipt.run);
    }
    match serde_json::from_slice::<Failure>(bytes) {
        Ok(Failure::Terminal { run }) => Some(run),
        _ => None,
    }
}

impl State {
    fn check_value(&mut self, caller: &Site, run: RunId, verdict: Verdict, saw: Option<Outcome>) {
        if run == OPERATOR {
            if !self.keys[caller.number].lives.iter().any(|life| life.operator) {
                self.violate(ONE_RESULT, "an operator's value, and none has decided".to_owned());
            }
            return;
        }
        let Some(seen) = self.runs.get(run) else {
            return self.violate(ONE_RESULT, format!("a value of no run: {run}"));
        };
        if seen.key != caller.number {
            let (number, key) = (caller.number, seen.key);
            return self.violate(ONE_RESULT, format!("a caller of key {number} gets a value of key {key}"));
        }
        let (life, ended) = (seen.life, seen.ended.map(|(_, ended)| ended));
        self.check_fingerprint(caller, run);
        self.check_wait(caller, run, saw);
        if matches!(saw, Some(Outcome::Unrecorded { .. })) {
            self.check_unrecorded(caller, run);
        }
        if matches!(caller.way, Way::MissingKey | Way::Message) {
            return;
        }
        let recorded = life.and_then(|life| self.keys[caller.number].lives[life].recorded.clone());
        let is_stored =
            recorded.as_ref().is_some_and(|(is, result)| *is == verdict && run_of(result) == Some(run));
        let says_stored =
            matches!(saw, Some(Outcome::Executed { not_stored: None, .. } | Outcome::Replayed { .. }));
        if says_stored && !is_stored {
            let ended = ended.map_or("not ended".into(), |ended| format!("{ended:?}"));
            self.violate(STORED, format!("run {run} ({ended}) is not the recorded one"));
        }
    }

    /// A caller must not get the value of a call with another fingerprint. Calls without a fingerprint or
    /// without a key are not compared.
    fn check_fingerprint(&mut self, caller: &Site, run: RunId) {
        let arguments = [caller.argument, self.runs[run].argument];
        let ways = [caller.way, self.runs[run].way];
        let is_compared = self.plan.operations[caller.number].fingerprint
            && !ways.contains(&Way::MissingKey)
            && !arguments.contains(&NO_ARGUMENT);
        if is_compared && arguments[0] != arguments[1] {
            self.violate(FINGERPRINT, format!("the value of run {run}"));
        }
    }

    /// Whether a task of this process was blocked. A blocked task cannot wake waiters.
    fn has_blocked(&self, process: ProcessId) -> bool {
        self.runs.iter().any(|run| run.process == process && !run.blocked.is_zero())
    }

    /// Checks that a waiter gets a result soon after the result is recorded.
    fn check_wait(&mut self, caller: &Site, run: RunId, saw: Option<Outcome>) {
        let (Some(life), Some(Outcome::Replayed { .. })) = (self.runs[run].life, saw) else { return };
        let Some((at, process)) = self.keys[caller.number].lives[life].recorded_at else { return };
        // While a transaction has the key, other callers get no answer.
        let at = self.keys[caller.number].taken_until.map_or(at, |until| at.max(until));
        let is_rung = process == Some(caller.process) && !matches!(caller.way, Way::Transaction { .. });
        let longest = if is_rung { AT_ONCE } else { SOON };
        // This waiter may share a request that another waiter sent earlier. So the check applies only if
        // nothing has gone wrong since the earliest time at which that request may have been sent.
        let patience = Duration::from_millis(self.plan.operations[caller.number].store_timeout);
        let Some(since) = caller.called.checked_sub(patience + SOON) else { return };
        let ran = self.runs.iter().any(|run| {
            run.key == caller.number && run.process == caller.process && run.began >= caller.called
        });
        let calm = self.is_calm(caller.process, since) && !self.has_blocked(caller.process);
        if caller.called < at && !ran && calm && at.elapsed() > longest {
            self.violate(WAITED, format!("a waiter gets the value of run {run} {:?} late", at.elapsed()));
        }
    }

    /// Checks a call that is refused as reentrant: it must be inside the body that has the key, and must not
    /// have waited.
    fn check_reentrant(&mut self, caller: &Site) {
        let waited = caller.called.elapsed() > AT_ONCE && self.is_calm(caller.process, caller.called);
        if waited || self.around(caller).next().is_none() {
            self.violate(REENTRANT, format!("a call of key {}, which waited: {waited}", caller.number));
        }
    }

    /// Checks a call that is refused because another call has the key, or because the key is not due.
    fn check_busy(&mut self, operation: &OperationPlan, caller: &Site) {
        let took = caller.called.elapsed();
        // A call inside a body with the same key does not wait. If another call has taken the key over, the
        // body may not know this yet.
        let waits = self.around(caller).next().is_none();
        if waits && took + Duration::from_millis(1) < Duration::from_millis(operation.wait) {
            self.violate(WAITED, format!("a call of key {} waits {took:?}", caller.number));
        }
        self.check_asked(operation, caller);
        if self.is_held_around(caller) {
            self.violate(REENTRANT, format!("a call of key {} waits for itself", caller.number));
        }
    }

    /// Checks that a refusal of [`Way::Run`] is up to date: the process has got an answer of the store
    /// recently, or is waiting for one.
    fn check_asked(&mut self, operation: &OperationPlan, caller: &Site) {
        let requests = self.keys[caller.number].requests.get(&caller.process).copied().unwrap_or_default();
        let patience = Duration::from_millis(operation.store_timeout);
        // Includes the time of a renewal, which `requests` does not count. If a claim is granted too late, the
        // engine renews the lease first, and may refuse the call only then.
        let is_old = |at: Instant| at.elapsed() > patience + ANSWER_IS_OLD + AT_ONCE;
        if caller.way == Way::Run && requests.under_way == 0 && requests.answered.is_none_or(is_old) {
            self.violate(WAITED, format!("a call of key {} is refused by an old answer", caller.number));
        }
    }

    /// Whether this call is made inside of a body that holds the call's key.
    fn is_held_around(&self, caller: &Site) -> bool {
        let key = &self.keys[caller.number];
        // A transaction that has taken the key over hides the key's record until it commits.
        let held = |record: &&Record| record.state == RecordState::InFlight && key.taken_by.is_none();
        key.record
            .as_ref()
            .filter(held)
            .is_some_and(|record| self.around(caller).any(|run| run.fence == Some(record.fence.get())))
    }

    /// The running bodies of this key that the call is nested in, the innermost first.
    fn around(&self, caller: &Site) -> impl Iterator<Item = &Run> {
        let number = caller.number;
        let runs = std::iter::successors(caller.parent, move |run| self.runs[*run].parent);
        let runs = runs.map(move |run| &self.runs[run]);
        runs.filter(move |run| run.key == number && run.ended.is_none())
    }

    /// The last body that this call started.
    fn own_run(&self, caller: &Site) -> Option<(RunId, &Run)> {
        let own = caller.own_run.load(Ordering::SeqCst);
        Some((own, self.runs.get(own).filter(|run| run.key == caller.number)?))
    }

    /// Checks that a body goes on if its key came into doubt and no other call has taken the key over.
    fn check_held_in_doubt(&mut self, caller: &Site) {
        let Some((own, run)) = self.own_run(caller) else { return };
        let is_dropped = matches!(run.ended, Some((_, Ended::Dropped))) && run.began >= caller.called;
        let record = self.keys[caller.number].record.as_ref();
        let is_held = record.is_some_and(|record| {
            record.state == RecordState::InDoubt && Some(record.fence.get()) == run.fence
        });
        if is_dropped && is_held {
            self.violate(GOES_ON, format!("run {own} is dropped"));
        }
    }

    /// Checks a call that is refused as `Exhausted`: its own body must not have returned a value. The caller
    /// gets such a value even if the attempts are used up.
    fn check_not_exhausted(&mut self, caller: &Site) {
        let Some((own, run)) = self.own_run(caller) else { return };
        if run.fence.is_some() && matches!(run.ended, Some((_, Ended::Value))) {
            self.violate(THROWN_AWAY, format!("run {own}, for the limit of attempts"));
        }
    }

    /// Checks a caller that gets the result of its body although the result is not recorded. If another call
    /// took over the key while the body ran, that call's body must not be running now, because it will have
    /// another result.
    fn check_unrecorded(&mut self, caller: &Site, id: RunId) {
        let run = &self.runs[id];
        let (Some((at, _)), Some(fence), Some(life)) = (run.ended, run.fence, run.life) else { return };
        let key = &self.keys[caller.number];
        // Looks only at a record that is alive, because an attempt whose record has expired no longer has the
        // key.
        let in_flight = |record: &&Record| record.state == RecordState::InFlight;
        let Some(record) = self.live(caller.number).filter(in_flight) else { return };
        let later = key.grants.get(&record.fence.get()).filter(|later| later.life == life && later.at < at);
        let runs = later.and_then(|later| later.started).is_some_and(|run| self.runs[run].ended.is_none());
        if runs && record.fence.get() > fence && self.has_answers(caller.process, at) {
            self.violate(ONE_RESULT, format!("a caller gets the value of run {id}, and another run goes on"));
        }
    }

    /// Whether all three hold from `since` until now: the process ran all the time, none of its requests had
    /// a fault, and the store's clock did not jump.
    fn has_answers(&self, id: ProcessId, since: Instant) -> bool {
        let process = &self.processes[id];
        let ran = process.stopped_until.is_none() && process.stood_still.is_none_or(|at| at <= since);
        ran && process.is_alive
            && process.faulted.is_none_or(|at| at < since)
            && self.jumped.is_none_or(|at| at < since)
    }

    /// Whether a body's error may be the reason why this key is not due.
    fn may_be_paced(&self, operation: &OperationPlan, caller: &Site) -> bool {
        let record = self.keys[caller.number].record.as_ref();
        let grant = record.filter(|record| record.state == RecordState::Released);
        let grant = grant.and_then(|record| self.keys[caller.number].grants.get(&record.fence.get()));
        let ended = grant.and_then(|granted| granted.started).and_then(|run| self.runs[run].ended);
        // The caller's answer may be older than the record.
        let is_older = |at| at >= caller.called || !self.was_calm(caller);
        let failed = ended.is_none_or(|(at, ended)| matches!(ended, Ended::Error) || is_older(at));
        failed && (operation.retry_after.is_some() || operation.retry_after_error)
    }

    fn check_refusal(&mut self, world: &World, caller: &Site, error: &Error) {
        let operation = &world.plan.operations[caller.number];
        let secret = crate::world::key(caller.number);
        if error.to_string().contains(&secret) || format!("{error:?}").contains(&secret) {
            self.violate(PRIVATE, error.kind().as_str().to_owned());
        }
        let explained = match error {
            Error::InFlight { reentrant: true, .. } => {
                self.check_reentrant(caller);
                true
            }
            Error::InFlight { .. } => {
                self.check_busy(operation, caller);
                true
            }
            Error::NotDue { retry_after, .. } => {
                self.check_busy(operation, caller);
                let is_paced = self.may_be_paced(operation, caller);
                if is_paced && *retry_after > idem_core::defaults::LONGEST && self.jumped.is_none() {
                    self.violate(BOUNDED, format!("key {}", caller.number));
                }
                is_paced
            }
            Error::InDoubt { .. } => {
                self.check_held_in_doubt(caller);
                // Under `in_doubt`, a call with `recover` is granted the key, so it does not get this error.
                let is_granted = operation.in_doubt && operation.recover.is_some();
                !is_granted || !self.was_calm(caller) || caller.has_deadline
            }
            Error::Mismatch { .. } => operation.fingerprint,
            Error::Exhausted { attempts, .. } => {
                self.check_not_exhausted(caller);
                // An operator may have released the key while `recover` ran after the last attempt.
                let is_operated = self.keys[caller.number].lives.iter().any(|life| life.operator);
                operation.max_attempts.is_some_and(|most| *attempts == most || is_operated)
            }
            Error::TimedOut { .. } => operation.timeout.is_some(),
            Error::NoTimeLeft { .. } => caller.has_deadline,
            Error::ResultNotStored { .. } => {
                let is_it =
                    |run: &Run| run.key == caller.number && matches!(run.ended, Some((_, Ended::Unstorable)));
                self.runs.iter().any(is_it)
            }
            Error::LeaseLost { .. } => !self.was_calm(caller) || caller.has_deadline,
            Error::Store { source, .. } => {
                !self.was_calm(caller)
                    || caller.has_deadline
                    || source.kind() == StoreErrorKind::TooLarge
                    || self.processes.iter().any(|other| other.disturbed.is_some())
            }
            // An operator may have recorded an error for an operation that records no errors.
            Error::Undecodable { .. } => {
                !operation.terminal && self.keys[caller.number].lives.iter().any(|life| life.operator)
            }
            Error::NotRecorded { .. } => matches!(caller.way, Way::Transaction { .. }),
            Error::Step { .. } => true,
            _ => false,
        };
        if !explained {
            self.violate(EXPLAINED, format!("{error}"));
        }
    }

    fn was_calm(&self, caller: &Site) -> bool {
        self.is_calm(caller.process, caller.called)
            && self.jumped.is_none()
            && !self.keys[caller.number].lives.iter().any(|life| life.operator)
    }

    /// Checks an acknowledged message. Its handler got the value of this run. So a result must be recorded,
    /// unless an operator, a deadline or a fault prevented it.
    pub fn acknowledged_message(&mut self, number: usize, run: RunId) {
        let Some(life) = self.runs.get(run).and_then(|run| run.life) else { return };
        let is_recorded = self.keys[number].lives[life].recorded.is_some();
        let could_not = self.keys[number].lives[life].operator
            || self.runs[run].has_deadline
            || !self.is_calm(self.runs[run].process, self.runs[run].began);
        if !is_recorded && !could_not {
            self.violate(ACKNOWLEDGED, format!("the message of run {run}"));
        }
    }

    /// Checks a process whose `drain` has returned: it must have waited for all background work of its calls.
    pub fn drained(&mut self, process: ProcessId) {
        for id in 0..self.runs.len() {
            let run = &self.runs[id];
            let Some(life) = run.life.filter(|_| run.process == process) else { continue };
            let kept = matches!(run.ended, Some((_, Ended::Value | Ended::Terminal)));
            let recorded = self.keys[run.key].lives[life].recorded.as_ref();
            let is_recorded = recorded.is_some_and(|(_, result)| run_of(result) == Some(id));
            let record = self.keys[run.key].record.as_ref();
            // After a jump of the clock, a record that had expired may live again.
            let holds = record.is_some_and(|record| {
                self.jumped.is_none()
                    && protocol::is_live(record, self.now())
                    && record.state == RecordState::InFlight
                    && Some(record.fence.get()) == run.fence
            });
            if run.parent.is_none() && run.ended.is_none() {
                self.violate(DRAINED, format!("run {id} still runs"));
            } else if run.parent.is_none()
                && holds
                && run.ended.is_some_and(|ended| self.is_released(id, ended))
            {
                self.violate(DRAINED, format!("the claim of run {id} is not released"));
            }
            let run = &self.runs[id];
            // A task that outlives its body may still make a call. `drain` does not know of that task, so the
            // value of the call may be unrecorded.
            let is_calling = |(at, _): (Instant, _)| at.elapsed() < AT_ONCE || !self.has_answers(process, at);
            let may_record = run.parent.is_some() && run.ended.is_some_and(is_calling);
            if kept && !is_recorded && !run.was_unrecorded && !may_record {
                self.violate(DRAINED, format!("the value of run {id} is not recorded"));
            }
        }
    }

    /// Whether the claim of this run must be released once all background work has ended. An abandoned claim
    /// may stay unreleased if a request had a fault, the process stopped or the clock jumped. The engine
    /// retries its release only until the lease is over, because the end of the lease has the same effect.
    fn is_released(&self, id: RunId, (at, ended): (Instant, Ended)) -> bool {
        let run = &self.runs[id];
        match ended {
            Ended::Error => true,
            Ended::Panicked | Ended::Dropped => self.has_answers(run.process, run.began.min(at)),
            _ => false,
        }
    }

    /// Notes that a body ended, and checks that it ended in time.
    pub fn end_run(&mut self, id: RunId, ended: Ended) {
        let run = &mut self.runs[id];
        run.ended = Some((Instant::now(), ended));
        let took = Instant::now() - run.began;
        let (timeout, blocked, process, began) = (run.timeout, run.blocked, run.process, run.began);
        note!(self, "process {process}: run {id} ends: {ended:?}");
        self.check_taken_over(id);
        let state = &self.processes[process];
        let stood_still = state.stood_still.is_some_and(|at| at >= began) || !state.is_alive;
        if let Some(timeout) = timeout
            && took > timeout + blocked + Duration::from_millis(5)
            && !stood_still
        {
            self.violate(TIMEOUT, format!("run {id} took {took:?}"));
        }
    }

    /// Checks a body whose key another call has taken over: the answer to its next renewal must end the body.
    fn check_taken_over(&mut self, id: RunId) {
        let run = &self.runs[id];
        let (Some(life), Some(fence), true) = (run.life, run.fence, run.blocked.is_zero()) else { return };
        let key = &self.keys[run.key];
        let mut later = key.grants.range(fence + 1..).filter(|(_, granted)| granted.life == life);
        let Some((_, granted)) = later.next() else { return };
        let lease = Duration::from_millis(self.plan.operations[run.key].lease);
        let longest = lease + Duration::from_millis(100);
        if run.began < granted.at && granted.at.elapsed() > longest && self.is_calm(run.process, granted.at) {
            self.violate(TAKEN_OVER, format!("run {id}, {:?} ago", granted.at.elapsed()));
        }
    }

    /// Notes that a step's closure runs, and checks that it may run.
    pub fn begin_step(&mut self, id: RunId, name: &str, by_scope: bool) {
        note!(self, "run {id}: step {name} runs");
        let run = &self.runs[id];
        if run.in_transaction {
            self.violate(STEP_OUTSIDE, format!("step {name} of run {id}"));
            return;
        }
        if run.fence.is_none() {
            return;
        }
        if run.ended.is_some() {
            self.violate(STEP_OVER, format!("step {name} of run {id}"));
        }
        if self.runs[id].is_within_step && by_scope {
            self.violate(STEP_NESTED, format!("step {name} of run {id}"));
        }
        let run = &self.runs[id];
        let (key, fence) = (run.key, run.fence.unwrap_or_default());
        if let Some(at) = self.keys[key].grants.get(&fence).map(|granted| granted.at) {
            self.check_held(id, key, fence, at);
        }
        let run = &self.runs[id];
        let Some(life) = run.life else { return };
        let steps = &self.keys[run.key].lives[life].steps;
        if self.jumped.is_none()
            && steps.get(name).is_some_and(|step| step.acknowledged)
            && self.resolved_meanwhile(run.key, life, fence) != Some(Instant::now())
        {
            self.violate(STEP, format!("step {name} in run {id}"));
        }
    }

    /// Looks at the last renewal of this grant to which the store answered that the key is in doubt. If an
    /// operator resolved the doubt while the worker waited for this answer, returns the time of the answer.
    fn resolved_meanwhile(&self, number: usize, life: usize, fence: u64) -> Option<Instant> {
        let key = &self.keys[number];
        let (begin, end) = key.grants.get(&fence)?.doubt_confirmed?;
        (begin..=end).contains(&key.lives[life].resolved?).then_some(end)
    }

    /// Whether an operator resolved the doubt of this run when the run's worker could not notice the
    /// decision: while the worker waited for the store's answer that the key is in doubt, or before the body
    /// began. The second case needs a jump of the clock that ended the lease.
    fn is_resolved(&self, number: usize, life: usize, run: &Run) -> bool {
        let Some(fence) = run.fence else { return false };
        let key = &self.keys[number];
        let (Some(granted), Some(resolved)) = (key.grants.get(&fence), key.lives[life].resolved) else {
            return false;
        };
        let is_late =
            (granted.at..=run.began).contains(&resolved) && self.jumped.is_some_and(|at| at >= granted.at);
        is_late || self.resolved_meanwhile(number, life, fence).is_some()
    }

    /// Checks the value of a step that a body got.
    pub fn step_returned(&mut self, id: RunId, name: &str, input: Option<u8>, value: u64) {
        let run = &self.runs[id];
        if run.in_transaction || run.fence.is_none() {
            return;
        }
        let Some(life) = run.life else { return };
        let key = run.key;
        let recorded = self.keys[key].lives[life].steps.get(name).and_then(|step| step.recorded.clone());
        let is_it = |result| match result {
            StoredResult::Value(bytes) => serde_json::from_slice::<u64>(&bytes).ok() == Some(value),
            StoredResult::Tombstone(_) => true,
        };
        if !recorded.is_some_and(is_it) {
            self.violate(STEP_VALUE, format!("step {name} in run {id}"));
        }
        let before = self.keys[key].lives[life].steps.get(name).and_then(|step| step.input);
        if before.is_some() && input.is_some() && before != input {
            self.violate(STEP_INPUT, format!("step {name} in run {id}"));
        }
        self.keys[key].lives[life].steps.entry(name.to_owned()).or_default().acknowledged = true;
    }

    /// Checks the state after a history, when all faults are over and all background work has had time to
    /// end.
    pub fn check_end(&mut self, plan: &[OperationPlan]) {
        for id in 0..self.runs.len() {
            let run = &self.runs[id];
            let is_alive = self.processes[run.process].is_alive;
            let Some(life) = run.life.filter(|_| is_alive) else {
                if is_alive && run.ended.is_none() && run.timeout.is_some() && !run.in_transaction {
                    self.violate(TIMEOUT, format!("run {id} still runs"));
                }
                continue;
            };
            let kept = matches!(run.ended, Some((_, Ended::Value | Ended::Unstorable | Ended::Terminal)));
            let recorded = self.keys[run.key].lives[life].recorded.as_ref();
            let is_unstorable = matches!(run.ended, Some((_, Ended::Unstorable)));
            let is_recorded = recorded.is_some_and(|(_, result)| is_unstorable || run_of(result) == Some(id));
            if kept && !is_recorded && !run.was_unrecorded {
                self.violate(THROWN_AWAY, format!("run {id}"));
            }
        }
        let now = self.now();
        for (number, operation) in plan.iter().enumerate() {
            let Some(record) = self.live(number).cloned() else { continue };
            let owner = self.keys[number].grants.get(&record.fence.get()).and_then(|granted| granted.started);
            let runs = owner.is_some_and(|run| self.runs[run].ended.is_none());
            if record.state == RecordState::InFlight && !runs && record.lease_until > now {
                self.violate(FREE, format!("key {number} is held by nobody"));
            }
            self.check_doubt(operation, number);
        }
    }
}
