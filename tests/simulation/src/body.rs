//! Bodies: what they do to the world, and what they see of their call.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use idem_runtime::{Error, Step, StepError, context};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::caller::{self, Site};
use crate::checks::{OF_RECOVER, STEP_OUTSIDE};
use crate::network::awake;
use crate::plan::{Act, End, Millis, Recover, Script, Way};
use crate::world::{Ended, RunId, World};

/// At this depth of nested bodies, `Act::Through` no longer calls back.
const DEEPEST: usize = 3;

/// The value of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub run: RunId,
    pub pending: bool,
    /// JSON has no key that is a pair, so a value with an entry here does not serialize.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pairs: BTreeMap<(u8, u8), u8>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub padding: String,
}

impl Receipt {
    pub fn of(run: RunId) -> Self {
        Self { run, pending: false, pairs: BTreeMap::new(), padding: String::new() }
    }
}

/// The error of a body.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Failure {
    Transient {
        run: RunId,
        retry_after: Millis,
    },
    Terminal {
        run: RunId,
    },
    #[serde(skip)]
    Idem(Option<Error>),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(Some(error))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body failed")
    }
}

pub type Returned = Result<Receipt, Failure>;
pub type BoxBody = Pin<Box<dyn Future<Output = Returned> + Send>>;

/// The time until which the task of a call does not run, in milliseconds of the history. A body and the task
/// that runs the body share this value.
pub type Blocked = Arc<AtomicU64>;

/// Ends a run when its body is dropped.
struct Running {
    world: World,
    run: RunId,
    ended: Ended,
}

impl Drop for Running {
    fn drop(&mut self) {
        let ended = if std::thread::panicking() { Ended::Panicked } else { self.ended };
        self.world.lock().end_run(self.run, ended);
    }
}

pub async fn body(site: Site, script: Script) -> Returned {
    let world = site.world.clone();
    let context = context();
    let run = world.begin_run(&site, context.as_ref());
    site.own_run.store(run, Ordering::SeqCst);
    let mut running = Running { world: world.clone(), run, ended: Ended::Dropped };
    let own_run = Arc::new(AtomicUsize::new(usize::MAX));
    let inner = Site { parent: Some(run), way: Way::Run, own_run, depth: site.depth + 1, ..site.clone() };
    for act in &script.acts {
        awake(&world, site.process).await;
        match do_act(&inner, run, act).await {
            Ok(()) => {}
            // A call in a transaction has no steps, so the step fails and the body goes on.
            Err(Failure::Idem(Some(Error::Step { source: StepError::Unprotected, .. }))) => {}
            Err(error) => {
                running.ended = world.error_means(site.number);
                return Err(error);
            }
        }
    }
    awake(&world, site.process).await;
    let retry_after = match script.end {
        End::Error { retry_after } if world.plan.operations[site.number].retry_after_error => retry_after,
        _ => 0,
    };
    let (ended, result) = match script.end {
        End::Value => (Ended::Value, Ok(Receipt::of(run))),
        End::Pending => (Ended::Refused, Ok(Receipt { pending: true, ..Receipt::of(run) })),
        // The next two values cannot be stored. In their place the engine records a tombstone, which says
        // why.
        End::Large => (
            Ended::Unstorable,
            Ok(Receipt { padding: "x".repeat(crate::network::LARGEST), ..Receipt::of(run) }),
        ),
        End::Unencodable => {
            (Ended::Unstorable, Ok(Receipt { pairs: BTreeMap::from([((0, 0), 0)]), ..Receipt::of(run) }))
        }
        End::Error { .. } => {
            (site.world.error_means(site.number), Err(Failure::Transient { run, retry_after }))
        }
        End::Terminal => (Ended::Terminal, Err(Failure::Terminal { run })),
        End::Panic => {
            running.ended = Ended::Panicked;
            std::panic::resume_unwind(Box::new("a body of the simulation"));
        }
        End::Hang => std::future::pending().await,
    };
    world.lock().runs[run].retry_after = retry_after;
    running.ended = ended;
    result
}

async fn do_act(site: &Site, run: RunId, act: &Act) -> Result<(), Failure> {
    match *act {
        Act::Sleep(time) => sleep(Duration::from_millis(time)).await,
        Act::Effect => site.world.lock().runs[run].had_effect = true,
        Act::Step { name, input, takes, fails } => drop(step(site, run, name, input, takes, fails).await?),
        Act::Steps { rounds, pause } => {
            for round in 0..rounds {
                awake(&site.world, site.process).await;
                // The names begin at 10, because single steps have lower names.
                step(site, run, 10 + round, None, 0, false).await?;
                sleep(Duration::from_millis(pause)).await;
            }
        }
        Act::DroppedStep { name, takes, dropped_after } => {
            let _ = timeout(Duration::from_millis(dropped_after), step(site, run, name, None, takes, false))
                .await;
        }
        Act::TwoSteps { names, takes } => {
            let first = step(site, run, names.0, None, takes.0, false);
            let second = step(site, run, names.1, None, takes.1, false);
            let (first, second) = futures_util::future::join(first, second).await;
            first?;
            second?;
        }
        Act::NestedStep { name } => nested(site, run, name).await?,
        Act::Spawned { after, name, awaited } => {
            let Some(context) = context() else { return Ok(()) };
            let (inner, process) = (site.clone(), site.process_value());
            let carried = async move {
                sleep(Duration::from_millis(after)).await;
                awake(&inner.world, inner.process).await;
                step(&inner, run, name, None, 1, false).await
            };
            let world = site.world.clone();
            let task = tokio::spawn(async move {
                outside(&world, run).await;
                process.scope(context.scope(carried)).await
            });
            if awaited {
                task.await.unwrap_or(Ok(0))?;
            }
        }
        Act::SpawnedCall { after } => {
            let Some(context) = context() else { return Ok(()) };
            let (inner, process) = (site.clone(), site.process_value());
            let carried = async move {
                sleep(Duration::from_millis(after)).await;
                awake(&inner.world, inner.process).await;
                let _ = caller::call(inner, Script::default(), 0).await;
            };
            tokio::spawn(async move { process.scope(context.scope(carried)).await });
        }
        Act::Call { operation } => {
            let nested = Site { number: operation, ..site.clone() };
            let process = site.process_value();
            let _ = process.scope(caller::call(nested, Script::default(), 0)).await;
        }
        Act::Through { operation } => {
            let back = Script { acts: vec![Act::Call { operation: site.number }], end: End::Value };
            // Without a limit, bodies that lose their leases could call each other without end.
            let back = if site.depth < DEEPEST { back } else { Script::default() };
            let through = match operation {
                Some(number) => Site { number, ..site.clone() },
                None => Site { way: Way::MissingKey, ..site.clone() },
            };
            let process = site.process_value();
            let _ = process.scope(caller::call(through, back, 0)).await;
        }
        Act::Block(time) => {
            let now = u64::try_from((Instant::now() - site.world.start).as_millis()).unwrap_or(0);
            site.world.lock().runs[run].blocked += Duration::from_millis(time);
            site.blocked.store(now + time, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

async fn step(
    site: &Site,
    run: RunId,
    name: u8,
    input: Option<u8>,
    takes: Millis,
    fails: bool,
) -> Result<u64, Failure> {
    let (text, world) = (format!("step{name}"), site.world.clone());
    let step = Step::new(text.clone());
    let step = match input {
        Some(input) => step.fingerprint(&input),
        None => step,
    };
    let inside = async {
        world.lock().begin_step(run, &text, false);
        world.lock().runs[run].inputs.insert(text.clone(), input);
        sleep(Duration::from_millis(takes)).await;
        awake(&world, site.process).await;
        if fails {
            return Err(Failure::Transient { run, retry_after: 0 });
        }
        let mut state = world.lock();
        state.runs[run].loose_steps.insert(text.clone());
        if state.runs[run].ended.is_none() {
            state.runs[run].ended_steps.push(text.clone());
        }
        state.steps += 1;
        Ok(state.steps)
    };
    let value = step.run(|| inside).await?;
    let mut state = site.world.lock();
    state.runs[run].loose_steps.remove(&text);
    state.step_returned(run, &text, input, value);
    Ok(value)
}

/// A step that begins outside of any call, in a task that the body of `run` spawned.
async fn outside(world: &World, run: RunId) {
    let closure = async {
        world.lock().violate(STEP_OUTSIDE, format!("in a task of run {run}"));
        Ok::<_, Failure>(0_u64)
    };
    let _ = Step::new("outside").run(|| closure).await;
}

/// A step that begins inside another step, in a scope of the call's context.
async fn nested(site: &Site, run: RunId, name: u8) -> Result<(), Failure> {
    let (world, before) = (site.world.clone(), context());
    let around = format!("around{name}");
    let inside = async {
        world.lock().runs[run].is_within_step = true;
        // The inner step runs in the context inside the outer step, or in the context from before that step.
        if let Some(context) = if name.is_multiple_of(2) { context() } else { before } {
            let text = format!("nested{name}");
            let inner = Step::new(text.clone());
            let closure = async {
                world.lock().begin_step(run, &text, true);
                Ok::<_, Failure>(0_u64)
            };
            let _ = context.scope(inner.run(|| closure)).await;
        }
        let mut state = world.lock();
        state.runs[run].is_within_step = false;
        state.runs[run].loose_steps.insert(around.clone());
        Ok::<_, Failure>(0_u64)
    };
    let result = Step::new(around.clone()).run(|| inside).await;
    let mut state = site.world.lock();
    state.runs[run].is_within_step = false;
    if result.is_ok() {
        state.runs[run].loose_steps.remove(&around);
    }
    result.map(drop)
}

/// The `recover` function of an operation. The function knows whether there was an effect.
pub async fn recover(site: Site, recovery: idem_runtime::Recovery) -> Result<Option<Receipt>, Failure> {
    awake(&site.world, site.process).await;
    sleep(Duration::from_millis(1)).await;
    awake(&site.world, site.process).await;
    let steps: Vec<String> = recovery.steps().map(str::to_owned).collect();
    let Some(how) = site.world.plan.operations[site.number].recover else { return Ok(None) };
    let mut state = site.world.lock();
    state.recover_asked(site.number, site.process, recovery.fence().get(), &steps, how)
}

impl crate::world::State {
    fn recover_asked(
        &mut self,
        number: usize,
        process: usize,
        fence: u64,
        steps: &[String],
        how: Recover,
    ) -> Result<Option<Receipt>, Failure> {
        let key = &mut self.keys[number];
        key.recoveries += 1;
        let is_first = key.recoveries == 1;
        let Some(life) = key.grants.get(&fence).map(|granted| granted.life) else {
            self.violate(crate::checks::ONCE, "`recover` has a fence that was never granted".to_owned());
            return Ok(None);
        };
        let record = key.record.clone();
        let seen = &self.keys[number].lives[life];
        // If another grant has the key by now, nobody uses the answer of this `recover`.
        let is_current = record.as_ref().is_some_and(|record| record.fence.get() == fence);
        let is_known = record.is_some_and(|record| !record.recovered);
        let forgotten = seen.steps.iter().find(|(name, step)| step.acknowledged && !steps.contains(name));
        let forgotten = forgotten.map(|(name, _)| name.clone());
        let effect = seen.runs.iter().copied().find(|run| self.runs[*run].had_effect);
        if let Some(name) = forgotten.filter(|_| is_current) {
            self.violate(crate::checks::ALL_STEPS, format!("step {name} is recorded"));
        }
        if is_current && is_known {
            self.violate(crate::checks::UNASKED, format!("process {process}: key {number}"));
        }
        let answer = match (how, effect) {
            (Recover::FailsFirst, _) if is_first && self.plan.operations[number].terminal => {
                Err(Failure::Terminal { run: OF_RECOVER })
            }
            (Recover::FailsFirst, _) if is_first => {
                Err(Failure::Transient { run: OF_RECOVER, retry_after: 0 })
            }
            (Recover::PendingFirst, Some(run)) if is_first => {
                Ok(Some(Receipt { pending: true, ..Receipt::of(run) }))
            }
            (_, Some(run)) => Ok(Some(Receipt::of(run))),
            (_, None) => Ok(None),
        };
        crate::note!(self, "process {process}: recover of key {number}: {answer:?}");
        let life = &mut self.keys[number].lives[life];
        match &answer {
            Ok(None) => {
                life.cleared = life.runs.len();
                life.found = false;
                // The store learns this answer only when the body starts, and the call may time out before
                // that.
                life.is_doubted_by_recover = true;
                life.is_unsure = false;
            }
            // If another call has the key, the result that this `recover` found is not recorded.
            Ok(Some(_)) => life.found |= is_current,
            Err(_) => life.is_doubted_by_recover = true,
        }
        answer
    }
}

/// A call's future in the task of its caller. It is not polled while the process stands still or the body
/// blocks.
pub struct Gated<F> {
    pub world: World,
    pub process: usize,
    pub blocked: Blocked,
    pub inner: Pin<Box<F>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        ready!(self.world.lock().poll_awake(self.process, cx));
        let now = u64::try_from((Instant::now() - self.world.start).as_millis()).unwrap_or(0);
        let until = self.blocked.load(Ordering::SeqCst);
        if until > now {
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(until - now)).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.inner.as_mut().poll(cx)
    }
}
