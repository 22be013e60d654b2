//! Callers: how a call is made, and what its caller gets.

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_messages::{Consumer, DeadLetter, Delivery};
use idem_runtime::__simulation::Process;
use idem_runtime::{Begun, Error, Interrupted, OnCrash, Operation, Recovery, ResultRules, observe};
use tokio::time::Instant;

use crate::body::{Blocked, BoxBody, Failure, Receipt, Returned, body, recover};
use crate::checks::ACKNOWLEDGED;
use crate::network::SimStore;
use crate::plan::{NO_ARGUMENT, OperationPlan, Script, Way};
use crate::transaction::SimTransaction;
use crate::world::{ProcessId, RunId, World, key, scope};

/// Where a call is made.
#[derive(Clone)]
pub struct Site {
    pub world: World,
    pub store: SimStore,
    pub process: ProcessId,
    pub number: usize,
    pub way: Way,
    pub parent: Option<RunId>,
    pub blocked: Blocked,
    /// The last run of a body that the calls of this caller started.
    pub own_run: Arc<AtomicUsize>,
    /// The argument from which the call makes its fingerprint.
    pub argument: u8,
    pub called: Instant,
    /// How many bodies the call is nested in.
    pub depth: usize,
    /// Whether the lease of the call ends at a deadline.
    pub has_deadline: bool,
}

impl Site {
    pub fn process_value(&self) -> Process {
        self.world.lock().processes[self.process].process.clone()
    }
}

/// The operation of a plan.
fn operation(number: usize, plan: &OperationPlan, argument: u8) -> Operation {
    let millis = Duration::from_millis;
    let mut operation = Operation::new(scope(number))
        .lease(millis(plan.lease))
        .ttl(millis(plan.ttl))
        .store_timeout(millis(plan.store_timeout))
        .wait(millis(plan.wait));
    if plan.in_doubt {
        operation = operation.on_crash(OnCrash::InDoubt);
    }
    if let Some(attempts) = plan.max_attempts {
        operation = operation.max_attempts(attempts);
    }
    if let Some(timeout) = plan.timeout {
        operation = operation.timeout(millis(timeout));
    }
    if let Some((least, most)) = plan.retry_after {
        operation = operation.retry_after(millis(least)..millis(most));
    }
    if plan.fail_open {
        operation = operation.fail_open();
    }
    if plan.fingerprint && argument != NO_ARGUMENT {
        operation = operation.fingerprint(&argument);
    }
    operation
}

/// The operation with the plan's rules about results; `None` if the plan has no such rules.
fn typed(operation: &Operation, plan: &OperationPlan) -> Option<Operation<ResultRules<Receipt, Failure>>> {
    if !(plan.terminal || plan.record_if || plan.retry_after_error) {
        return None;
    }
    let is_terminal: fn(&Failure) -> bool = match plan.terminal {
        true => |failure| matches!(failure, Failure::Terminal { .. }),
        false => |_| false,
    };
    let mut typed = operation.clone().terminal::<Receipt, Failure>(is_terminal);
    if plan.record_if {
        typed = typed.record_if(|receipt| !receipt.pending);
    }
    if plan.retry_after_error {
        typed = typed.retry_after_error(|failure, _| match failure {
            Failure::Transient { retry_after, .. } => Duration::from_millis(*retry_after),
            _ => Duration::ZERO,
        });
    }
    Some(typed)
}

/// Makes one call, and checks what its caller gets.
#[must_use]
pub fn call(site: Site, script: Script, argument: u8) -> BoxBody {
    Box::pin(called(site, script, argument))
}

async fn called(site: Site, script: Script, argument: u8) -> Returned {
    let own_run = Arc::new(AtomicUsize::new(usize::MAX));
    let site = Site { argument, called: Instant::now(), own_run, ..site };
    let caller = site.clone();
    site.world.lock().calls += 1;
    let world = site.world.clone();
    if site.way == Way::Message {
        return message(site, script, argument).await;
    }
    let observed = observe(made(site, script, argument)).await;
    world.answered(&caller, &observed.value, observed.outcome);
    observed.value
}

async fn made(site: Site, script: Script, argument: u8) -> Returned {
    let plan = site.world.plan.operations[site.number].clone();
    if plan.http {
        return crate::web::request(site, script).await;
    }
    let (store, key, way) = (site.store.clone(), key(site.number), site.way);
    let operation = operation(site.number, &plan, argument);
    let typed = typed(&operation, &plan);
    let recovers = plan.recover.is_some();
    let at_recovery = site.clone();
    let find = move |recovery: Recovery| recover(at_recovery.clone(), recovery);
    if let Way::Transaction { commit, loses_savepoint } = way {
        let mut transaction = SimTransaction::begin(&site.world, site.process);
        let inside = async |transaction: &mut SimTransaction| {
            transaction.rows += 1;
            let result = body(site.clone(), script.clone()).await;
            transaction.run = Some(site.own_run.load(std::sync::atomic::Ordering::SeqCst));
            transaction.has_lost_savepoint = loses_savepoint;
            result
        };
        let result = match typed {
            Some(typed) => typed.run_in_transaction(&store, &mut transaction, key, inside).await,
            None => operation.run_in_transaction(&store, &mut transaction, key, inside).await,
        };
        return transaction.finish(commit, result).await;
    }
    if way == Way::Begun {
        return begun(&operation, &plan, &store, key, body(site, script)).await;
    }
    let inside = move || body(site, script);
    let is_detached = way == Way::Detached;
    if way == Way::MissingKey {
        let limit = plan.timeout.map_or(NO_LIMIT, Duration::from_millis);
        return without_key(&store, None, limit, Box::pin(inside())).await;
    }
    match (typed, recovers, is_detached) {
        (None, false, false) => operation.run(&store, key, inside).await,
        (None, false, true) => operation.run_detached(&store, key, inside).await,
        (None, true, false) => operation.recover(find).run(&store, key, inside).await,
        (None, true, true) => operation.recover(find).run_detached(&store, key, inside).await,
        (Some(typed), false, false) => typed.run(&store, key, inside).await,
        (Some(typed), false, true) => typed.run_detached(&store, key, inside).await,
        (Some(typed), true, false) => typed.recover(find).run(&store, key, inside).await,
        (Some(typed), true, true) => typed.recover(find).run_detached(&store, key, inside).await,
    }
}

/// Makes a call by `Operation::begin`, and ends the attempt by the rules that `Operation::run` follows.
async fn begun(
    operation: &Operation,
    plan: &OperationPlan,
    store: &SimStore,
    key: String,
    work: impl Future<Output = Returned>,
) -> Returned {
    let attempt = match operation.begin(store, key).await? {
        Begun::Replay(replay) => return replay.result::<Receipt, Failure>()?,
        Begun::Run(attempt) => attempt,
    };
    let (result, attempt) = match attempt.run(work).await {
        Ok(ran) => ran,
        Err(interrupted) => return interrupted_with(interrupted),
    };
    let ended = match &result {
        Ok(receipt) => attempt.complete(receipt).await,
        Err(failure @ Failure::Terminal { .. }) if plan.terminal => attempt.complete_error(failure).await,
        Err(Failure::Transient { retry_after, .. }) if plan.retry_after_error => {
            attempt.fail(Some(Duration::from_millis(*retry_after))).await;
            return result;
        }
        Err(_) => {
            attempt.fail(plan.retry_after_error.then_some(Duration::ZERO)).await;
            return result;
        }
    };
    ended.map_or_else(interrupted_with, |_| result)
}

fn interrupted_with(interrupted: Interrupted<SimStore>) -> Returned {
    match interrupted {
        Interrupted::Replay(replay) => replay.result::<Receipt, Failure>()?,
        Interrupted::Refused(error) => Err(error.into()),
    }
}

/// The `timeout` of an operation that has no timeout.
const NO_LIMIT: Duration = Duration::from_secs(86_400 * 365);

#[idem::idempotent(key = "{id}", missing_key = "run", timeout = limit, scope = "operation0", store = store)]
async fn without_key(store: &SimStore, id: Option<&str>, limit: Duration, body: BoxBody) -> Returned {
    body.await
}

/// What a consumer did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Acknowledged,
    Retry(Duration),
    Rejected,
    GivenBack,
}

struct Message(Arc<Mutex<Option<Settled>>>);

impl Message {
    fn settle(&self, settled: Settled) -> Result<(), Infallible> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(settled);
        Ok(())
    }
}

impl Delivery for Message {
    type Error = Infallible;

    async fn acknowledge(&self) -> Result<(), Infallible> {
        self.settle(Settled::Acknowledged)
    }

    async fn retry(&self, after: Duration) -> Result<(), Infallible> {
        self.settle(Settled::Retry(after))
    }

    async fn reject(&self, _: &DeadLetter) -> Result<(), Infallible> {
        self.settle(Settled::Rejected)
    }

    async fn give_back(&self) -> Result<(), Infallible> {
        self.settle(Settled::GivenBack)
    }
}

/// Lets a consumer handle one message. The handler makes the call.
async fn message(site: Site, script: Script, argument: u8) -> Returned {
    let settled = Arc::new(Mutex::new(None));
    let stream = futures_util::stream::iter([Ok::<_, Infallible>(Message(settled.clone()))]);
    let last = Arc::new(Mutex::new(None));
    let handler = |_: &Message| {
        let (site, script, last) = (site.clone(), script.clone(), last.clone());
        async move {
            let caller = Site { called: Instant::now(), ..site.clone() };
            let world = site.world.clone();
            let result = made(Site { way: Way::Run, ..site }, script, argument).await;
            world.answered(&caller, &result, None);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.clone());
            result
        }
    };
    Consumer::new().concurrency(1).run(stream, handler).await;
    let settled = *settled.lock().unwrap_or_else(PoisonError::into_inner);
    let result = last.lock().unwrap_or_else(PoisonError::into_inner).take();
    let result = result.unwrap_or(Err(Failure::Idem(None::<Error>)));
    if let (Some(Settled::Acknowledged), Ok(receipt)) = (settled, &result) {
        site.world.lock().acknowledged_message(site.number, receipt.run);
    }
    if let (Some(Settled::Acknowledged), Err(Failure::Idem(Some(error)))) = (settled, &result)
        && !matches!(error, Error::ResultNotStored { .. })
    {
        site.world.lock().violate(ACKNOWLEDGED, format!("its call is refused: {error}"));
    }
    match settled {
        Some(Settled::Acknowledged | Settled::Rejected) => result,
        // The broker delivers the message again, so the caller has no result yet.
        _ => Err(Failure::Transient { run: usize::MAX, retry_after: 0 }),
    }
}
