//! Passes operations to the workers that run them.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use idem_core::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::backlog::{Backlog, Batch, Rules};
use super::operation::{Answer, Operation, Waiting};
use super::server::Server;
use super::watch::{Wake, watch};
use super::worker;
use crate::own_runtime::{apart, own_runtime};
use crate::retry::retried;

/// How many runtimes may have a queue of their own. Further runtimes use the queue of the stores' runtime.
const RUNTIMES: usize = 64;

type Reply = Result<Answer, StoreError>;

/// The queues of one store. After this value is dropped, running operations are still completed. Waiting
/// operations still run, unless nobody needs them.
pub struct Queues<S: Server>(Arc<Shared<S>>);

pub(super) struct Shared<S: Server> {
    pub(super) server: Arc<S>,
    pub(super) queues: Mutex<Vec<Arc<Queue<S>>>>,
    pub(super) wake: Arc<Wake>,
}

/// The operations and sessions of one runtime.
pub(super) struct Queue<S: Server> {
    runtime: Handle,
    pub(super) server: Arc<S>,
    state: Mutex<State<S>>,
    wake: Arc<Wake>,
    /// The queue of the stores' own runtime; `None` in that queue itself.
    own: Option<Arc<Self>>,
    /// Whether a worker panicked in this runtime, probably because the runtime has no network. If so, callers
    /// in this runtime use the queue of the stores' own runtime.
    is_unfit: AtomicBool,
}

pub(super) struct State<S: Server> {
    pub(super) backlog: Backlog,
    /// Open sessions that nobody uses, and since when they are idle. A worker takes the most recent one
    /// first, so that unneeded sessions become old and are closed.
    pub(super) idle: Vec<(S::Session, Instant)>,
    /// How many workers and lingering attempts there are. Each may have a session.
    busy: usize,
    /// How many workers are about to look for work.
    looking: usize,
    /// Attempts that took too long; the server may still work on them.
    lingering: Vec<Arc<Lingering>>,
    /// Whether a task is asking the server about the lingering attempts.
    is_asking: bool,
    closed: bool,
}

impl<S: Server> Queues<S> {
    /// The queues of a store on this server.
    pub fn new(server: S) -> Self {
        let (queues, wake) = (Mutex::default(), Arc::default());
        Self(Arc::new(Shared { server: Arc::new(server), queues, wake }))
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &S {
        &self.0.server
    }

    /// Runs an operation, and repeats it if the answer was lost or the server was unavailable for a moment.
    /// An [`Op::Forget`](super::Op::Forget) whose answer was lost is not repeated.
    ///
    /// # Errors
    ///
    /// The errors of the server; `Unavailable` or `OutcomeUnknown` if the time is over.
    pub fn ask(&self, operation: Operation) -> impl Future<Output = Reply> + Send + use<S> {
        // The operation is allocated outside of the future, because otherwise the future of each call would
        // contain it.
        let (shared, operation, begin) = (self.0.clone(), Arc::new(operation), Instant::now());
        async move {
            match answered(shared.ask_once(&operation, false)?).await {
                Err(error) if error.is_transient() && !operation.must_not_be_repeated(&error) => {
                    let left = shared.server.timeout().saturating_sub(begin.elapsed());
                    // Boxed, because this case is rare and would otherwise enlarge the future of every call.
                    Box::pin(ask_again(shared, operation, error, left)).await
                }
                answer => answer,
            }
        }
    }
}

/// Repeats an operation for at most the time `left`. The pauses run in the stores' own runtime, which no
/// caller can block.
fn ask_again<S: Server>(
    shared: Arc<Shared<S>>,
    operation: Arc<Operation>,
    first: StoreError,
    left: Duration,
) -> impl Future<Output = Reply> + Send {
    let mut first = Some(first);
    apart(async move {
        retried(left, || {
            let (shared, operation, first) = (shared.clone(), operation.clone(), first.take());
            async move {
                let answer = match first {
                    Some(error) => Err(error),
                    None => answered(shared.ask_once(&operation, true)?).await,
                };
                match answer {
                    Err(error) if operation.must_not_be_repeated(&error) => Ok(Err(error)),
                    answer => answer.map(Ok),
                }
            }
        })
        .await?
    })
}

/// Waits for the answer to an operation in the queue. If this future is dropped, a running operation
/// continues, and a waiting operation runs only if others need its effect.
async fn answered(reply: oneshot::Receiver<Reply>) -> Reply {
    reply.await.unwrap_or_else(|_| Err(StoreError::outcome_unknown("the work on it was broken off")))
}

impl<S: Server> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Queue<S>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an operation into the queue of the caller's runtime. If `apart` is `true`, or if callers do not
    /// run this operation themselves, puts it into the queue of the stores' own runtime.
    fn ask_once(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        apart: bool,
    ) -> Result<oneshot::Receiver<Reply>, StoreError> {
        let own = own_runtime()?;
        let queue = match Handle::try_current() {
            Ok(callers) if !apart && S::is_run_by_callers(operation) => self.queue(&callers, own),
            _ => self.queue(own, own),
        };
        Ok(queue.submit(operation.clone()))
    }

    fn queue(self: &Arc<Self>, runtime: &Handle, own: &Handle) -> Arc<Queue<S>> {
        let mut queues = self.lock();
        if queues.is_empty() {
            queues.push(Arc::new(Queue::new(self, own.clone(), None)));
            own.spawn(watch(Arc::downgrade(self), self.wake.clone()));
        }
        let id = runtime.id();
        let own = queues[0].clone();
        if let Some(queue) = queues.iter().find(|queue| queue.runtime.id() == id) {
            return if queue.is_unfit.load(Ordering::Relaxed) { own } else { queue.clone() };
        }
        // Removes unused queues, because their runtimes may have ended. An unfit queue stays, so that the
        // store does not use its runtime again.
        queues.retain(|queue| {
            queue.is_own() || queue.is_unfit.load(Ordering::Relaxed) || queue.lock().is_at_work()
        });
        if queues.len() >= RUNTIMES {
            return own;
        }
        let queue = Arc::new(Queue::new(self, runtime.clone(), Some(own)));
        queues.push(queue.clone());
        queue
    }
}

impl<S: Server> Drop for Queues<S> {
    fn drop(&mut self) {
        for queue in self.0.lock().iter() {
            queue.close();
        }
        // Lets the watch end.
        self.0.wake.wake();
    }
}

impl<S: Server> State<S> {
    /// Whether the queue has workers, open sessions or waiting operations.
    pub(super) fn is_at_work(&self) -> bool {
        self.busy > 0 || !self.idle.is_empty() || self.backlog.has_waiting()
    }
}

impl<S: Server> Queue<S> {
    fn new(shared: &Shared<S>, runtime: Handle, own: Option<Arc<Self>>) -> Self {
        let server = shared.server.clone();
        let backlog = Backlog::new(Rules {
            kinds: S::KINDS,
            changes_abreast: S::CHANGES_ABREAST,
            kind: S::kind,
            weight: S::weight,
            most_bytes: server.most_bytes(),
        });
        let state = State {
            backlog,
            idle: Vec::new(),
            busy: 0,
            looking: 0,
            lingering: Vec::new(),
            is_asking: false,
            closed: false,
        };
        let (state, wake, is_unfit) = (Mutex::new(state), shared.wake.clone(), AtomicBool::new(false));
        Self { runtime, server, state, wake, own, is_unfit }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the queue of the stores' own runtime.
    pub(super) const fn is_own(&self) -> bool {
        self.own.is_none()
    }

    fn submit(self: &Arc<Self>, operation: Arc<Operation>) -> oneshot::Receiver<Reply> {
        let now = Instant::now();
        let (ticket, answered) = Waiting::new(operation, now + self.server.timeout());
        let mut state = self.lock();
        state.backlog.push(ticket);
        self.call(state, now);
        answered
    }

    /// Puts operations without an answer into the queue of the stores' own runtime. If this already is that
    /// queue, drops the operations, so they fail.
    pub(super) fn repeat_apart(&self, tickets: Vec<Waiting>) {
        let Some(own) = &self.own else { return };
        let mut state = own.lock();
        for ticket in tickets {
            state.backlog.push(ticket.repeated());
        }
        own.call(state, Instant::now());
    }

    /// Whether only reads may start, because changes and lingering attempts use all sessions but one. The
    /// last session is kept for reads, which may be possible even if nothing can be committed.
    fn lets_only_read(&self, state: &State<S>) -> bool {
        let changes = state.backlog.changes_under_way() + state.lingering.len();
        changes > 0 && changes + 1 >= self.server.connections()
    }

    /// Starts a worker if there is work and no worker is about to look for it. Wakes the watch, too: a worker
    /// that is about to look may wait in the LIFO slot of a blocked thread, and no other thread takes it from
    /// there. (The watch is the task in `watch` that checks all queues.)
    fn call(self: &Arc<Self>, state: MutexGuard<'_, State<S>>, now: Instant) {
        if !state.backlog.has_waiting() {
            return;
        }
        if state.looking == 0 {
            self.start(state, now);
        } else {
            drop(state);
        }
        self.wake.wake();
    }

    /// Starts a worker if there is work and another session is allowed for it.
    pub(super) fn start(self: &Arc<Self>, mut state: MutexGuard<'_, State<S>>, now: Instant) {
        if state.busy < self.server.connections() && state.backlog.has_work(now, self.lets_only_read(&state))
        {
            state.busy += 1;
            state.looking += 1;
            drop(state);
            self.runtime.spawn(worker::work(Hold::new(self, true)));
        }
    }

    /// The next batch for a worker; `None` if no operation may start.
    pub(super) fn next(self: &Arc<Self>, hold: &mut Hold<S>) -> Option<Batch> {
        let mut state = self.lock();
        if std::mem::take(&mut hold.is_looking) {
            state.looking -= 1;
        }
        let now = Instant::now();
        let only_reads = self.lets_only_read(&state);
        let batch = state.backlog.take(now, only_reads)?;
        hold.number = batch.number;
        if hold.session.is_none() {
            hold.session = state.idle.pop().map(|(session, _)| session);
        }
        // Starts another worker for the remaining operations.
        self.call(state, now);
        Some(batch)
    }

    /// Notes that the batch has ended and that its worker looks for the next batch.
    pub(super) fn arrive(&self, hold: &mut Hold<S>) {
        let mut state = self.lock();
        state.backlog.arrive(std::mem::take(&mut hold.number));
        state.looking += 1;
        hold.is_looking = true;
    }

    /// Begins an attempt of a batch. The returned value is notified when the attempt takes too long.
    pub(super) fn begin_attempt(&self, number: u64) -> Arc<Notify> {
        self.lock().backlog.begin_attempt(number, Instant::now())
    }

    /// Closes the sessions that nobody uses, and lets workers end after the waiting operations are done.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        self.close_sessions(idle.into_iter().map(|(session, _)| session));
    }

    /// Closes sessions from the stores' own runtime, because the runtime that opened them may no longer run.
    pub(super) fn close_sessions(&self, sessions: impl Iterator<Item = S::Session>) {
        let Ok(own) = own_runtime() else { return };
        for session in sessions {
            own.spawn(self.server.close(session));
        }
    }
}

/// An attempt that took too long and still runs.
pub(super) struct Lingering {
    /// The server's name for the session of the attempt.
    name: String,
    /// Notified to end the attempt.
    end: Notify,
}

impl<S: Server> Queue<S> {
    /// Lets an attempt that took too long continue on its session.
    pub(super) fn linger(
        self: &Arc<Self>,
        name: String,
        attempt: impl Future<Output = Option<S::Session>> + Send + 'static,
    ) {
        let lingering = Arc::new(Lingering { name, end: Notify::new() });
        let mut state = self.lock();
        state.busy += 1;
        state.lingering.push(lingering.clone());
        drop(state);
        let mut hold = Hold::new(self, false);
        hold.lingering = Some(lingering.clone());
        self.runtime.spawn(async move {
            let mut hold = hold;
            if let Either::Left((session, _)) = select(pin!(attempt), pin!(lingering.end.notified())).await {
                hold.session = session;
            }
            hold.is_done = true;
        });
    }

    /// Asks the server from time to time whether it still works on attempts that took too long. Otherwise the
    /// store would not notice their end if a connection was lost, or if the server restarted or was replaced.
    pub(super) fn ask_about_lingering(self: &Arc<Self>, state: &mut State<S>) {
        if state.is_asking || state.lingering.is_empty() {
            return;
        }
        let Ok(own) = own_runtime() else { return };
        state.is_asking = true;
        let (queue, lingering) = (self.clone(), state.lingering.clone());
        own.spawn(async move {
            let names: Vec<_> = lingering.iter().map(|lingering| lingering.name.clone()).collect();
            let (server, time) = (&queue.server, queue.server.timeout());
            let at_work = timeout(time, async {
                let mut session = server.open().await.ok()?;
                let at_work = server.at_work(&mut session, &names).await;
                server.close(session).await;
                at_work.ok()
            });
            if let Ok(Some(at_work)) = at_work.await {
                for gone in lingering.iter().filter(|lingering| !at_work.contains(&lingering.name)) {
                    gone.end.notify_one();
                }
            }
            sleep(time / 4).await;
            queue.lock().is_asking = false;
        });
    }
}

/// The right of a worker or a lingering attempt to one session, until this value is dropped.
pub(super) struct Hold<S: Server> {
    pub(super) queue: Arc<Queue<S>>,
    pub(super) session: Option<S::Session>,
    /// The number of the worker's running batch; 0 for none.
    pub(super) number: u64,
    is_looking: bool,
    lingering: Option<Arc<Lingering>>,
    /// Whether the worker or the attempt ended normally. Otherwise it panicked, or its runtime ended.
    pub(super) is_done: bool,
}

impl<S: Server> Hold<S> {
    fn new(queue: &Arc<Queue<S>>, is_looking: bool) -> Self {
        Self { queue: queue.clone(), session: None, number: 0, is_looking, lingering: None, is_done: false }
    }
}

impl<S: Server> Drop for Hold<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.is_unfit.store(true, Ordering::Relaxed);
        }
        let mut state = self.queue.lock();
        state.busy -= 1;
        state.backlog.arrive(self.number);
        if std::mem::take(&mut self.is_looking) {
            state.looking -= 1;
        }
        if let Some(lingering) = self.lingering.take() {
            state.lingering.retain(|other| !Arc::ptr_eq(other, &lingering));
        }
        let session = self.session.take();
        if !self.is_done {
            // If the runtime is gone, no caller in it starts another worker. So the stores' own runtime
            // must run the operations that still wait.
            let orphans = state.backlog.take_all();
            drop(state);
            drop(session);
            self.queue.repeat_apart(orphans);
        } else if state.closed {
            self.queue.call(state, Instant::now());
            self.queue.close_sessions(session.into_iter());
        } else {
            let now = Instant::now();
            state.idle.extend(session.map(|session| (session, now)));
            self.queue.call(state, now);
        }
    }
}
