//! Runs one history: carries out a plan, then ends all faults, and checks the state after that.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_core::Store as _;
use idem_core::listing::List;
use idem_core::protocol::{Resolution, StoredResult, Verdict};
use idem_runtime::__simulation::Process;
use idem_runtime::{LateRecording, drain, with_deadline};
use tokio::time::{Instant, sleep, timeout};

use crate::body::{Blocked, Failure, Gated, Returned};
use crate::caller::{Site, call};
use crate::checks::{DRAINED, FREE, GIVEN_UP, OPERATOR, run_of};
use crate::network::SimStore;
use crate::note;
use crate::plan::{CallPlan, EventPlan, FaultPlan, Plan, Resolve, Script, Way, What};
use crate::world::{Ended, ProcessId, ProcessState, Run, Violation, World};

/// The result of a history.
pub struct Report {
    pub violations: Vec<Violation>,
    pub calls: u64,
    pub requests: u64,
    pub faults: Vec<FaultPlan>,
    pub runs: usize,
    pub history: Option<String>,
}

#[must_use]
pub fn run(plan: Plan, with_history: bool) -> Report {
    stop_at_own_faults();
    // The pauses of the engine come from this generator.
    fastrand::seed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    IN_HISTORY.set(true);
    let (report, world) = runtime.block_on(async {
        let world = World::new(plan, with_history);
        live(&world).await;
        let mut state = world.lock();
        let history = state.history.take();
        let report = Report {
            violations: state.violations.clone(),
            calls: state.calls,
            requests: state.requests,
            faults: std::mem::take(&mut state.faults),
            runs: state.runs.len(),
            history,
        };
        drop(state);
        (report, world)
    });
    drop(runtime);
    // The stores of the processes contain the world, and the world contains the processes. If the processes
    // were not dropped here, the world would keep itself alive.
    let processes = std::mem::take(&mut world.lock().processes);
    drop(processes);
    IN_HISTORY.set(false);
    report
}

thread_local! {
    static IN_HISTORY: Cell<bool> = const { Cell::new(false) };
}

/// Ends the program if the simulation itself panics, because tokio would hide the panic. Bodies panic without
/// running this hook.
fn stop_at_own_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            shown(panic);
            if IN_HISTORY.get() {
                std::process::abort();
            }
        }));
    });
}

async fn live(world: &World) {
    let plan = world.plan.clone();
    for worker in 0..plan.workers {
        start(world, worker).await;
    }
    let mut clients: Vec<_> =
        plan.calls.iter().map(|call| tokio::spawn(client(world.clone(), call.clone()))).collect();
    let events: Vec<_> =
        plan.events.iter().map(|event| tokio::spawn(happen(world.clone(), event.clone()))).collect();
    sleep(Duration::from_millis(plan.length)).await;
    heal(world);
    // Longer than any lease, any timeout of the store and any pause between two tries.
    let longest =
        plan.operations.iter().map(|op| op.lease * 3 + op.store_timeout * 2 + op.wait).max().unwrap_or(0);
    let quiet = Duration::from_millis(longest) + Duration::from_secs(30);
    sleep(quiet).await;
    for task in events {
        let _ = timeout(quiet, task).await;
    }
    heal(world);
    // Each client should have ended by now. If a client still runs, it hangs.
    clients.drain(..).for_each(|client| client.abort());
    let tasks: Vec<_> =
        world.lock().processes.iter_mut().flat_map(|process| process.tasks.drain(..)).collect();
    tasks.iter().for_each(tokio::task::AbortHandle::abort);
    sleep(quiet).await;
    world.lock().check_end(&plan.operations);
    last_calls(world).await;
}

/// Ends all faults, for the rest of the history.
fn heal(world: &World) {
    let mut state = world.lock();
    if state.healed.is_none() {
        note!(state, "everything works again");
        state.healed = Some(Instant::now());
    }
    state.outage.clear();
    for process in &mut state.processes {
        if process.stopped_until.take().is_some() {
            process.stood_still = Some(Instant::now());
            process.disturbed = Some(Instant::now());
        }
        process.wakers.drain(..).for_each(std::task::Waker::wake);
    }
}

async fn start(world: &World, worker: usize) -> ProcessId {
    let process = Process::simulated();
    let id = {
        let mut state = world.lock();
        let id = state.processes.len();
        state.processes.push(ProcessState {
            worker,
            process: process.clone(),
            is_alive: true,
            stopped_until: None,
            disturbed: None,
            faulted: None,
            stood_still: None,
            wakers: Vec::new(),
            layers: std::collections::BTreeMap::new(),
            store: SimStore::new(world.clone(), id),
            tasks: Vec::new(),
        });
        state.running[worker] = Some(id);
        note!(state, "worker {worker} starts as process {id}");
        id
    };
    let seen = world.clone();
    let hook = LateRecording::new().on_unrecorded(move |unrecorded| {
        let mut state = seen.lock();
        let run = run_of(&unrecorded.result);
        if let Some(error) = &unrecorded.error {
            state.violate(GIVEN_UP, format!("{error}"));
        }
        // A tombstone names no run, so it may belong to any run whose value cannot be stored.
        let number = unrecorded.call.operation().trim_start_matches("operation").parse().unwrap_or(0);
        let is_it = |run: &Run| {
            run.key == number
                && run.process == id
                && !run.was_unrecorded
                && matches!(run.ended, Some((_, Ended::Unstorable)))
        };
        // Several runs may fit. Prefers a run whose own result is not recorded. Among such runs, prefers a
        // run whose key has no result at all. Among these, takes the last run.
        let is_open =
            |run: &Run| run.life.is_some_and(|life| state.keys[run.key].lives[life].recorded.is_none());
        let fitting = state.runs.iter().enumerate().filter(|(_, run)| is_it(run));
        let likely = |(at, run): &(usize, &Run)| (!state.is_kept(number, *at), is_open(run), *at);
        let run = run.or_else(|| fitting.max_by_key(likely).map(|(at, _)| at));
        if let Some(run) = run.filter(|run| *run < state.runs.len()) {
            note!(state, "process {id}: the hook gets the result of run {run}");
            // With `recover`, a later run may have recorded the same value.
            if state.plan.operations[number].recover.is_none() && state.is_kept(number, run) {
                state.violate(GIVEN_UP, format!("the result of run {run} is recorded"));
            }
            state.runs[run].was_unrecorded = true;
        }
    });
    process.scope(async { hook.install() }).await;
    id
}

/// The process of a worker. Waits for the next process if none runs.
async fn serving(world: &World, worker: usize) -> ProcessId {
    loop {
        if let Some(id) = world.lock().running[worker] {
            return id;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn site(world: &World, id: ProcessId, number: usize, way: Way) -> Site {
    Site {
        world: world.clone(),
        store: world.lock().processes[id].store.clone(),
        process: id,
        number,
        way,
        parent: None,
        blocked: Blocked::default(),
        own_run: Arc::new(AtomicUsize::new(usize::MAX)),
        argument: 0,
        called: Instant::now(),
        depth: 0,
        has_deadline: false,
    }
}

/// Makes one call in a task of a process, and returns its answer; `None` if the process died, or if the
/// caller dropped the call.
async fn in_process(world: &World, id: ProcessId, plan: &CallPlan) -> Option<Returned> {
    let site = Site { has_deadline: plan.deadline.is_some(), ..site(world, id, plan.operation, plan.way) };
    let process = site.process_value();
    let (blocked, script, argument) = (site.blocked.clone(), plan.body.clone(), plan.argument);
    let deadline = plan.deadline.map(|after| Instant::now() + Duration::from_millis(after));
    let inner = Box::pin(async move {
        let call = process.scope(call(site, script, argument));
        match deadline {
            Some(deadline) => with_deadline(deadline, call).await,
            None => call.await,
        }
    });
    let gated = Gated { world: world.clone(), process: id, blocked, inner };
    let dropped_after = plan.dropped_after.map(Duration::from_millis);
    let task = tokio::spawn(async move {
        match dropped_after {
            Some(after) => timeout(after, gated).await.ok(),
            None => Some(gated.await),
        }
    });
    world.lock().processes[id].tasks.push(task.abort_handle());
    task.await.ok().flatten()
}

/// A client, outside of all workers.
async fn client(world: World, plan: CallPlan) {
    sleep(Duration::from_millis(plan.at)).await;
    for _ in 0..plan.tries {
        let id = serving(&world, plan.worker).await;
        match in_process(&world, id, &plan).await {
            Some(Ok(receipt)) if !receipt.pending => return,
            Some(Err(Failure::Terminal { .. })) => return,
            _ => sleep(Duration::from_millis(plan.pause)).await,
        }
    }
}

async fn happen(world: World, event: EventPlan) {
    sleep(Duration::from_millis(event.at)).await;
    match event.what {
        What::Kill { worker } => {
            let Some(id) = world.lock().running[worker].take() else { return };
            kill(&world, id, "is killed");
            sleep(Duration::from_millis(50)).await;
            start(&world, worker).await;
        }
        What::Stop { worker, lasts } => stop(&world, worker, Duration::from_millis(lasts)).await,
        What::Shutdown { worker } => shut_down(&world, worker).await,
        What::Outage { worker, lasts, refuses } => {
            let until = Instant::now() + Duration::from_millis(lasts);
            {
                let mut state = world.lock();
                note!(state, "the store is away for {lasts} ms for {worker:?}, refuses: {refuses}");
                state.outage.push((worker, until, refuses));
            }
            sleep(Duration::from_millis(lasts)).await;
            let mut state = world.lock();
            note!(state, "the store is back");
            state.outage.retain(|(_, end, _)| *end > Instant::now());
        }
        What::Jump { by } => {
            let mut state = world.lock();
            note!(state, "the store's clock jumps by {by} ms");
            state.offset += by * 1_000;
            state.jumped = Some(Instant::now());
        }
        What::Resolve { .. } | What::Forget { .. } | What::Purge | What::List => {
            operator(&world, event.what).await
        }
    }
}

fn kill(world: &World, id: ProcessId, how: &str) {
    let mut state = world.lock();
    note!(state, "process {id} {how}");
    state.processes[id].is_alive = false;
    state.processes[id].tasks.drain(..).for_each(|task| task.abort());
}

async fn stop(world: &World, worker: usize, lasts: Duration) {
    let id = {
        let mut state = world.lock();
        let Some(id) = state.running[worker] else { return };
        note!(state, "process {id} stands still for {lasts:?}");
        let process = &mut state.processes[id];
        process.stopped_until = Some(Instant::now() + lasts);
        process.stood_still = Some(Instant::now());
        id
    };
    sleep(lasts).await;
    let mut state = world.lock();
    note!(state, "process {id} goes on");
    let process = &mut state.processes[id];
    process.stopped_until = None;
    process.stood_still = Some(Instant::now());
    process.disturbed = Some(Instant::now());
    process.wakers.drain(..).for_each(std::task::Waker::wake);
}

/// Ends a process in good order, and starts the next.
async fn shut_down(world: &World, worker: usize) {
    let Some(id) = world.lock().running[worker].take() else { return };
    {
        let mut state = world.lock();
        note!(state, "process {id} shuts down");
    }
    // Gives calls that are under way time to end.
    sleep(Duration::from_millis(500)).await;
    let (process, tasks) = {
        let mut state = world.lock();
        let process = &mut state.processes[id];
        (process.process.clone(), std::mem::take(&mut process.tasks))
    };
    tasks.iter().for_each(tokio::task::AbortHandle::abort);
    tokio::task::yield_now().await;
    let (began, patience) = (Instant::now(), Duration::from_secs(60));
    let left = process.scope(drain(patience)).await;
    {
        let mut state = world.lock();
        let is_left = left.bodies + left.results + left.releases > 0;
        if is_left && began.elapsed() < patience {
            state.violate(DRAINED, format!("it returns early: {left:?}"));
        }
        if left.is_complete() && began.elapsed() >= patience {
            state.violate(DRAINED, "it is not woken by the last work that ends".to_owned());
        }
        note!(state, "process {id} is drained: {left:?}");
        if left.is_complete() && state.processes[id].is_alive {
            state.drained(id);
        }
    }
    kill(world, id, "ends");
    start(world, worker).await;
}

/// Sends an operator's request from the first worker's process.
async fn operator(world: &World, what: What) {
    let id = serving(world, 0).await;
    let store = world.lock().processes[id].store.clone();
    let key = |number: usize| world.keys[number].clone();
    let patience = Duration::from_secs(5);
    let done = async {
        match what {
            What::Resolve { operation, verdict } => {
                let value = |text: String| StoredResult::Value(text.into());
                let resolution = match verdict {
                    Resolve::Done => {
                        let text = format!("{{\"run\":{OPERATOR},\"pending\":false}}");
                        Resolution::Record(Verdict::Completed, value(text))
                    }
                    Resolve::Failed => {
                        let text = format!("{{\"Terminal\":{{\"run\":{OPERATOR}}}}}");
                        Resolution::Record(Verdict::Failed, value(text))
                    }
                    Resolve::Release => Resolution::Release,
                };
                let _ = store.resolve(&key(operation), &resolution).await;
            }
            What::Forget { operation } => {
                let _ = store.forget(&key(operation)).await;
            }
            What::Purge => {
                let _ = store.purge(100).await;
            }
            _ => {
                let _ = store.list(&List::default()).await;
            }
        }
    };
    let _ = timeout(patience, done).await;
}

/// When everything works again, calls each key twice, except if a body of the key hangs. Each call must end.
/// If a call ends with an error, the cause must not be a claim that an earlier call left behind.
async fn last_calls(world: &World) {
    let count = world.plan.operations.len();
    for number in 0..count {
        let hangs = world.lock().runs.iter().any(|run| run.key == number && run.ended.is_none());
        if hangs || world.lock().keys[number].lives.is_empty() {
            continue;
        }
        for _ in 0..2 {
            let id = serving(world, 0).await;
            let site = site(world, id, number, Way::Run);
            let process = site.process_value();
            let patience = Duration::from_secs(600);
            let called =
                timeout(patience, process.scope(call(site, Script::default(), 0))).map(Result::ok).await;
            let held = match &called {
                None => true,
                Some(Err(Failure::Idem(Some(error)))) => {
                    matches!(error.kind().as_str(), "in_flight" | "store" | "lease_lost" | "timed_out")
                }
                Some(_) => false,
            };
            if held {
                world.lock().violate(FREE, format!("key {number} answers {called:?}"));
            }
        }
    }
}
