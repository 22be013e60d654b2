//! The store, behind a network that loses, delays, repeats and reorders requests and answers.
//!
//! Owns the records and their clock: each request is one atomic transition of the protocol. A sent request
//! stays on its way even if its sender gives up or dies.

use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use idem_core::listing::{List, Listed, Page};
use idem_core::protocol::{
    self, Answer, ClaimAnswer, OnCrash, Record, RecordStep, RecordStepAnswer, ReleaseCause, RenewAnswer,
    Request, State as RecordState, Transition, Verdict,
};
use idem_core::{RecordKey, Store, StoreError, Waiters};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::note;
use crate::plan::{Fault, Millis};
use crate::world::{Granted, Life, ProcessId, State, World};

/// The largest result that the store takes, in bytes.
pub const LARGEST: usize = 200;

/// The store's client in one process.
#[derive(Clone)]
pub struct SimStore {
    pub world: World,
    pub process: ProcessId,
    waiters: Waiters,
}

impl SimStore {
    pub fn new(world: World, process: ProcessId) -> Self {
        Self { world, process, waiters: Waiters::default() }
    }

    /// Sends a request, and returns what the sender learns.
    pub fn send<A, F>(&self, what: &'static str, apply: F) -> Sending<A>
    where
        A: Send + fmt::Debug + Clone + 'static,
        F: FnMut(&mut State, ProcessId) -> Result<A, StoreError> + Send + 'static,
    {
        let (world, process) = (self.world.clone(), self.process);
        Box::pin(async move {
            awake(&world, process).await;
            let answer = exchange(&world, process, what, apply).await;
            awake(&world, process).await;
            answer
        })
    }
}

pub type Sending<A> = Pin<Box<dyn Future<Output = Result<A, StoreError>> + Send>>;

/// Returns as soon as this process is not stopped. Never returns if the process is dead.
pub async fn awake(world: &World, process: ProcessId) {
    poll_fn(|cx| world.lock().poll_awake(process, cx)).await;
}

async fn exchange<A, F>(
    world: &World,
    process: ProcessId,
    what: &'static str,
    mut apply: F,
) -> Result<A, StoreError>
where
    A: Send + fmt::Debug + Clone + 'static,
    F: FnMut(&mut State, ProcessId) -> Result<A, StoreError> + Send + 'static,
{
    let (fault, before, after) = {
        let mut state = world.lock();
        let worker = state.processes[process].worker;
        let (drawn, before, after) = state.network(&world.plan, worker, what);
        let is_out = |only: &Option<usize>| only.is_none_or(|only| only == worker);
        let fault = match state.outage.iter().find(|(only, _, _)| is_out(only)) {
            Some((_, _, true)) => Some(Fault::Refused),
            Some((_, _, false)) => Some(Fault::RequestSwallowed),
            None => drawn,
        };
        if let Some(fault) = fault {
            let now = Some(Instant::now());
            (state.processes[process].disturbed, state.processes[process].faulted) = (now, now);
            note!(state, "process {process}: {what}: {fault:?}");
        }
        (fault, before, after)
    };
    let lost = || Err(StoreError::outcome_unknown("the simulated network lost it"));
    match fault {
        Some(Fault::Refused) => return Err(StoreError::unavailable("the simulated store refused it")),
        Some(Fault::RequestLost) => return lost(),
        Some(Fault::RequestSwallowed) => return pending().await,
        Some(Fault::AppliedLate(by)) => {
            tokio::spawn(too_late(world.clone(), by, move |state| apply(state, process)));
            return lost();
        }
        _ => {}
    }
    let before = match fault {
        Some(Fault::Slow(by)) => Duration::from_millis(by),
        _ => Duration::from_micros(before),
    };
    let after = match fault {
        Some(Fault::SlowAnswer(by)) => Duration::from_millis(by),
        _ => Duration::from_micros(after),
    };
    let answer = if before.is_zero() {
        let answer = apply(&mut world.lock(), process);
        if let Some(Fault::Repeated(by)) = fault {
            tokio::spawn(too_late(world.clone(), by, move |state| apply(state, process)));
        }
        answer
    } else {
        // Runs in a separate task, because a sent request arrives even if its sender gives up or dies.
        let (sender, receiver) = oneshot::channel();
        let travelling = world.clone();
        tokio::spawn(async move {
            sleep(before).await;
            let answer = late(&travelling, sender.is_closed(), |state| apply(state, process));
            let _ = sender.send(answer);
            if let Some(Fault::Repeated(by)) = fault {
                too_late(travelling, by, move |state| apply(state, process)).await;
            }
        });
        receiver.await.unwrap_or_else(|_| lost())
    };
    match fault {
        Some(Fault::AnswerLost) => lost(),
        Some(Fault::AnswerSwallowed) => pending().await,
        _ => {
            if !after.is_zero() {
                sleep(after).await;
            }
            answer
        }
    }
}

const fn words_of(request: &Request) -> &'static str {
    match request {
        Request::Claim(_) => "claim",
        Request::Renew(_) => "renew",
        Request::RecordStep(_) => "record step",
        Request::Complete(_) => "complete",
        Request::Release(_) => "release",
        _ => "resolve",
    }
}

/// Applies a request after this time, when nobody waits for its answer any more.
async fn too_late<A>(world: World, by: Millis, apply: impl FnOnce(&mut State) -> A) {
    sleep(Duration::from_millis(by)).await;
    late(&world, true, apply);
}

/// Applies a request. `is_late` means that the sender of the request has gone away.
fn late<A>(world: &World, is_late: bool, apply: impl FnOnce(&mut State) -> A) -> A {
    let mut state = world.lock();
    state.is_late = is_late;
    let answer = apply(&mut state);
    state.is_late = false;
    answer
}

impl State {
    /// One atomic transition of the store.
    pub fn apply(&mut self, number: usize, process: ProcessId, request: &Request) -> Answer {
        let now = self.now();
        let key = &self.keys[number];
        let Transition { write, answer, .. } = protocol::apply(key.record.as_ref(), key.floor, request, now);
        let locked = key.taken_by.is_some() && matches!(request, Request::Claim(_));
        debug_assert!(!locked, "a locked key is refused before");
        note!(self, "process {process}: {} of key {number}: {answer:?}", words_of(request));
        if let Some(record) = write {
            self.written(number, process, request, record);
            if let Request::Release(release) = request
                && release.cause == ReleaseCause::Failed
            {
                self.check_released(number, release.fence.get());
            }
        }
        answer
    }

    fn written(&mut self, number: usize, process: ProcessId, request: &Request, record: Record) {
        let now = self.now();
        let before = self.keys[number].record.take().filter(|record| protocol::is_live(record, now));
        if let Request::Claim(claim) = request
            && record.state == RecordState::InFlight
            && record.owner == claim.owner
        {
            self.granted(number, process, before.as_ref(), &record);
        }
        let key = &mut self.keys[number];
        let life = key.lives.last_mut();
        match (request, life) {
            (Request::Complete(complete), Some(life)) => {
                if life.recorded.is_some() {
                    self.violate("exactly one result is recorded", format!("key {number} has two"));
                } else {
                    life.recorded = Some((complete.verdict, complete.result.clone()));
                    life.recorded_at = Some((Instant::now(), (!self.is_late).then_some(process)));
                }
                self.check_kept(&complete.result);
            }
            (Request::RecordStep(step), Some(life)) => {
                let name = &step.step.name;
                let owner = key.grants.get(&step.fence.get()).and_then(|granted| granted.started);
                let input = owner.and_then(|run| self.runs[run].inputs.get(name).copied().flatten());
                let seen = life.steps.entry(name.clone()).or_default();
                (seen.recorded, seen.input) = (Some(step.step.result.clone()), input);
            }
            (Request::Release(release), _)
                if record.state == RecordState::Released && record.retry_at <= now =>
            {
                let owner = key.grants.get(&release.fence.get()).and_then(|granted| granted.started);
                // In three cases, the key is not free for waiters yet. A blocked task learns late that its
                // claim is released. A task that has given up never learns of the release. A transaction that
                // has taken the key refuses waiters until it ends.
                let is_free = owner.is_none_or(|run| self.runs[run].blocked.is_zero())
                    && key.taken_by.is_none()
                    && !self.is_late;
                key.freed = is_free.then(|| (Instant::now(), process));
            }
            (Request::Resolve(_), Some(life)) => {
                life.cleared = life.runs.len();
                life.found = false;
                life.is_doubted_by_recover = false;
                life.is_unsure = false;
                life.operator = true;
                life.resolved = Some(Instant::now());
                if let Some(result) = &record.result {
                    let is_failed = record.state == RecordState::Failed;
                    let verdict = if is_failed { Verdict::Failed } else { Verdict::Completed };
                    life.recorded.get_or_insert((verdict, result.clone()));
                }
            }
            _ => {}
        }
        self.keys[number].record = Some(record);
    }

    /// Notes that a claim was granted, and checks the grant.
    fn granted(&mut self, number: usize, process: ProcessId, before: Option<&Record>, record: &Record) {
        if before.is_none() {
            self.keys[number].lives.push(Life::default());
        }
        self.check_grant(number, before, record);
        let key = &mut self.keys[number];
        let life = key.lives.len() - 1;
        let (freed, at) = (key.freed.take(), Instant::now());
        let granted = Granted {
            life,
            process,
            started: None,
            is_late: self.is_late,
            at,
            freed,
            release_sent: None,
            step_sent: None,
            doubt_confirmed: None,
        };
        if key.grants.insert(record.fence.get(), granted).is_some() {
            self.violate("distinct grants have distinct fences", format!("key {number}"));
        }
    }

    /// Notes that a step or a release is sent. Checks a release that is sent again: the steps that have ended
    /// must be recorded by then.
    fn sent(&mut self, number: usize, request: &Request) {
        let (fence, is_step) = match request {
            Request::RecordStep(step) => (step.fence.get(), true),
            Request::Release(release)
                if matches!(release.cause, ReleaseCause::Failed | ReleaseCause::Abandoned) =>
            {
                (release.fence.get(), false)
            }
            _ => return,
        };
        let Some(granted) = self.keys[number].grants.get_mut(&fence) else { return };
        if is_step {
            granted.step_sent = Some(Instant::now());
            return;
        }
        // If a step was still under way when the release was last sent, the engine sends that step again only
        // before the next release. So this case is not checked.
        let before = granted.release_sent.replace(Instant::now());
        let patience = Duration::from_millis(self.plan.operations[number].store_timeout);
        let step_until = granted.step_sent.map(|step| step + patience);
        if before.is_some_and(|release| step_until.is_none_or(|until| until < release)) {
            self.check_steps_sent(number, fence);
        }
    }

    /// Notes that the sender of a step knows that the step is recorded.
    fn acknowledged(&mut self, number: usize, step: &RecordStep) {
        let Some(granted) = self.keys[number].grants.get(&step.fence.get()) else { return };
        let life = granted.life;
        let seen = self.keys[number].lives[life].steps.entry(step.step.name.clone()).or_default();
        seen.acknowledged = true;
    }

    pub fn delete(&mut self, number: usize) -> bool {
        let now = self.now();
        let key = &mut self.keys[number];
        let record = key.record.take();
        if let Some(record) = &record {
            key.floor = key.floor.max(record.fence);
        }
        if let Some(life) = key.lives.last_mut() {
            life.operator = true;
        }
        record.is_some_and(|record| protocol::is_live(&record, now))
    }
}

/// A claim or a read that is under way, for as long as somebody awaits its answer.
struct Asking {
    world: World,
    number: usize,
    process: ProcessId,
    is_answered: bool,
}

impl Asking {
    fn new(world: &World, number: usize, process: ProcessId) -> Self {
        let mut state = world.lock();
        let requests = state.keys[number].requests.entry(process).or_default();
        requests.under_way += 1;
        drop(state);
        Self { world: world.clone(), number, process, is_answered: false }
    }

    fn end<T>(mut self, answer: &Result<T, StoreError>) {
        self.is_answered = answer.is_ok();
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let requests = state.keys[self.number].requests.entry(self.process).or_default();
        requests.under_way -= 1;
        if self.is_answered {
            requests.answered = Some(Instant::now());
        }
    }
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").finish_non_exhaustive()
    }
}

impl Store for SimStore {
    fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        let (number, what) = (self.world.number(key), words_of(&request));
        let world = self.world.clone();
        let sent = request.clone();
        let asking =
            matches!(request, Request::Claim(_)).then(|| Asking::new(&self.world, number, self.process));
        let sending = self.send(what, move |state, process| {
            sent.check_size(LARGEST)?;
            match &sent {
                Request::Claim(claim) if state.keys[number].taken_by.is_some() => {
                    Ok(ClaimAnswer::Busy { retry_after: claim.lease }.into())
                }
                _ => Ok(state.apply(number, process, &sent)),
            }
        });
        async move {
            let begin = Instant::now();
            world.lock().sent(number, &request);
            let answer = sending.await;
            asking.into_iter().for_each(|asking| asking.end(&answer));
            match (&request, &answer) {
                (Request::Claim(claim), Ok(Answer::Claim(ClaimAnswer::InDoubt)))
                    if claim.on_crash == OnCrash::InDoubt =>
                {
                    world.lock().check_doubt(&world.plan.operations[number], number);
                }
                (Request::RecordStep(step), Ok(Answer::RecordStep(RecordStepAnswer::Recorded))) => {
                    world.lock().acknowledged(number, step);
                }
                (Request::Renew(renew), Ok(Answer::Renew(RenewAnswer::HeldInDoubt))) => {
                    if let Some(granted) = world.lock().keys[number].grants.get_mut(&renew.fence.get()) {
                        granted.doubt_confirmed = Some((begin, Instant::now()));
                    }
                }
                _ => {}
            }
            answer
        }
    }

    fn forget(&self, key: &RecordKey) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let number = self.world.number(key);
        self.send("forget", move |state, _| {
            note!(state, "forget of key {number}");
            Ok(state.delete(number))
        })
    }

    fn get(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send {
        let number = self.world.number(key);
        let asking = Asking::new(&self.world, number, self.process);
        let sending = self.send("get", move |state, process| {
            let record = state.live(number).cloned();
            let found = record.as_ref().map(|record| record.state);
            note!(state, "process {process}: get of key {number}: {found:?}");
            Ok(record)
        });
        async move {
            let record = sending.await;
            asking.end(&record);
            record
        }
    }

    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send {
        self.send("purge", move |state, _| {
            let now = state.now();
            let is_over = |key: &crate::world::KeyState| {
                key.record.as_ref().is_some_and(|record| !protocol::is_live(record, now))
            };
            let expired: Vec<_> =
                (0..state.keys.len()).filter(|number| is_over(&state.keys[*number])).take(limit).collect();
            note!(state, "purge of {} records", expired.len());
            for number in &expired {
                state.delete(*number);
            }
            Ok(expired.len())
        })
    }

    fn list(&self, request: &List) -> impl Future<Output = Result<Page, StoreError>> + Send {
        let (request, keys) = (request.clone(), self.world.keys.clone());
        self.send("list", move |state, _| {
            let mut page = Page::new(state.now());
            let records =
                keys.iter().zip(&state.keys).filter_map(|(key, slot)| Some((key, slot.record.clone()?)));
            let fitting = records.filter(|(_, record)| request.takes(record.state));
            page.records.extend(fitting.map(|(key, record)| Listed::new(key.clone(), record)));
            Ok(page)
        })
    }

    fn max_result_bytes(&self) -> Option<usize> {
        // Some clients do not know the limit of their server.
        self.process.is_multiple_of(2).then_some(LARGEST)
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}
