//! A connection on which the requests that are ready at the same moment go to the server together.
//!
//! Requests that are sent together cost this process and the server less: they share system calls, and one
//! message to the connection's task. A request is sent at once, by itself, if it is large or few others are
//! unanswered. Otherwise it is sent as soon as the tasks that are ready now have run, in one pipeline with
//! the requests of these tasks. No request waits for a timer. The server executes the requests of a pipeline
//! one by one, each with its own answer.

#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{future, io, mem};

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::scripts::Request;

/// While fewer requests than this are unanswered, and no request waits to be sent, a new request is sent at
/// once, by itself.
const FEW: usize = 4;

/// The largest number of requests in a pipeline.
const MOST: usize = 64;

/// The answers to one pipeline should have at most this many bytes. The first answer arrives together with
/// the last one, and the connection seems silent until then.
const MOST_BYTES: usize = 1 << 20;

/// The assumed size of an answer, until the first answers arrive.
const UNSEEN: usize = MOST_BYTES / 8;

/// A request with more bytes is always sent by itself, because a pipeline copies its requests.
const LARGE: usize = 16 << 10;

/// How long a task may take to send the waiting requests. If another task does not yield the thread, it may
/// delay this task. After this time, the next request starts a second task for the waiting requests.
const HELD_UP: Duration = Duration::from_millis(5);

pub(super) struct Pipelined {
    /// When the connection was opened.
    pub(super) opened: Instant,
    connection: MultiplexedConnection,
    sent: AtomicU64,
    answered: AtomicU64,
    is_broken: AtomicBool,
    broken: Notify,
    queue: Mutex<Queue>,
}

struct Queue {
    waiting: Vec<Waiting>,
    /// When a task was started to send the waiting requests; `None` if no such task runs.
    served_since: Option<Instant>,
    unanswered: usize,
    /// The size of the largest recent answer.
    largest: usize,
}

struct Waiting {
    command: Arc<Cmd>,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl Pipelined {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let queue = Queue { waiting: Vec::new(), served_since: None, unanswered: 0, largest: UNSEEN };
        Self {
            opened: Instant::now(),
            connection,
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            broken: Notify::new(),
            queue: Mutex::new(queue),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails the requests that run or wait, and all later ones.
    pub(super) fn break_off(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.broken.notify_waiters();
        let waiting = self.queue().take();
        // The drop wakes the waiting callers, so the queue must not be locked.
        drop(waiting);
    }

    /// How many requests were sent, and how many were answered. The difference includes dropped requests.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    /// Sends a request once. If the future is dropped, the request may still be sent.
    pub(super) fn ask(
        self: &Arc<Self>,
        request: &Request,
    ) -> impl Future<Output = RedisResult<Value>> + Send {
        async move {
            self.sent.fetch_add(1, Ordering::Relaxed);
            let answer = match self.place(request) {
                Place::Alone(unanswered) => self.alone(&request.command, unanswered).await,
                // The sender of the answer is dropped if the connection was broken. It is also dropped if the
                // runtime ended before its task sent the waiting requests or got their answers.
                Place::Together(answer) => answer.await.unwrap_or_else(|_| Err(broken_off())),
            };
            self.answered.fetch_add(1, Ordering::Relaxed);
            answer.and_then(Value::extract_error)
        }
    }

    fn place(self: &Arc<Self>, request: &Request) -> Place {
        let mut queue = self.queue();
        let is_alone = queue.served_since.is_none() && queue.unanswered < FEW;
        let place = if is_alone || request.bytes() > LARGE {
            queue.unanswered += 1;
            Place::Alone(Unanswered { pipelined: self.clone(), count: 1 })
        } else {
            let (answer, answered) = oneshot::channel();
            queue.waiting.push(Waiting { command: request.command.clone(), answer });
            Place::Together(answered)
        };
        let is_to_be_served = queue.is_to_be_served();
        drop(queue);
        if is_to_be_served {
            tokio::spawn(Serving { pipelined: self.clone(), is_over: false }.serve());
        }
        place
    }

    fn alone(
        &self,
        command: &Cmd,
        unanswered: Unanswered,
    ) -> impl Future<Output = RedisResult<Value>> + Send {
        async move {
            let _unanswered = &unanswered;
            let mut connection = self.connection.clone();
            let answer = self.unless_broken(connection.req_packed_command(command)).await;
            if let Ok(answer) = &answer {
                self.queue().saw(bytes(answer));
            }
            answer
        }
    }

    fn unless_broken<'c, T: Send + 'c>(
        &'c self,
        mut answer: RedisFuture<'c, T>,
    ) -> impl Future<Output = RedisResult<T>> + Send {
        async move {
            // From here on, `broken` is notified of a broken connection, even before `broken` is polled.
            let mut broken = pin!(self.broken.notified());
            future::poll_fn(|context| match Pin::new(&mut answer).poll(context) {
                Poll::Pending if self.is_broken.load(Ordering::SeqCst) => Poll::Ready(Err(timed_out())),
                Poll::Pending => broken.as_mut().poll(context).map(|()| Err(timed_out())),
                answer => answer,
            })
            .await
        }
    }

    /// Sends these requests, and gives each its answer.
    async fn together(&self, lot: Lot) {
        let mut pipeline = Pipeline::with_capacity(lot.waiting.len());
        for waiting in &lot.waiting {
            pipeline.add_command((*waiting.command).clone());
        }
        let mut connection = self.connection.clone();
        let count = lot.waiting.len();
        match self.unless_broken(connection.req_packed_commands(&pipeline, 0, count)).await {
            Ok(answers) => {
                self.queue().saw(answers.iter().map(bytes).max().unwrap_or_default());
                for (waiting, answer) in lot.waiting.into_iter().zip(answers) {
                    // A caller that went away does not need the answer.
                    let _ = waiting.answer.send(Ok(answer));
                }
            }
            Err(error) => {
                for waiting in lot.waiting {
                    let _ = waiting.answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Divides the waiting requests into pipelines, in the order of their arrival.
    fn lots(self: &Arc<Self>) -> Vec<Lot> {
        let (waiting, most) = self.queue().take();
        // Requests whose caller went away are left out, because nobody would use a grant.
        let mut waiting = waiting.into_iter().filter(|waiting| !waiting.answer.is_closed());
        let mut lots = Vec::new();
        loop {
            let waiting: Vec<Waiting> = waiting.by_ref().take(most).collect();
            if waiting.is_empty() {
                return lots;
            }
            let count = waiting.len();
            self.queue().unanswered += count;
            lots.push(Lot { waiting, _unanswered: Unanswered { pipelined: self.clone(), count } });
        }
    }
}

/// How a request goes to the server.
enum Place {
    Alone(Unanswered),
    Together(oneshot::Receiver<RedisResult<Value>>),
}

/// The requests of one pipeline.
struct Lot {
    waiting: Vec<Waiting>,
    _unanswered: Unanswered,
}

/// Requests that count as unanswered until this value is dropped.
struct Unanswered {
    pipelined: Arc<Pipelined>,
    count: usize,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.pipelined.queue().unanswered -= self.count;
    }
}

/// The task that sends the waiting requests. If its runtime ends first, the waiting requests get no answer.
struct Serving {
    pipelined: Arc<Pipelined>,
    is_over: bool,
}

impl Serving {
    async fn serve(mut self) {
        after_what_is_ready().await;
        let mut lots = self.pipelined.lots();
        self.is_over = true;
        let last = lots.pop();
        for lot in lots {
            let pipelined = self.pipelined.clone();
            tokio::spawn(async move { pipelined.together(lot).await });
        }
        if let Some(lot) = last {
            self.pipelined.together(lot).await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            let waiting = self.pipelined.queue().take();
            // The drop wakes the waiting callers, so the queue must not be locked.
            drop(waiting);
        }
    }
}

/// Lets the other ready tasks run first, because they may add requests.
///
/// With tokio's `yield_now`, a task stays on its thread, even if another task blocks that thread. With this
/// function, another thread can take the task.
async fn after_what_is_ready() {
    let mut is_later = false;
    future::poll_fn(|context| {
        if mem::replace(&mut is_later, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Queue {
    /// Whether a task must be started to send the waiting requests.
    fn is_to_be_served(&mut self) -> bool {
        let is_served = self.served_since.is_some_and(|since| since.elapsed() < HELD_UP);
        if self.waiting.is_empty() || is_served {
            return false;
        }
        self.served_since = Some(Instant::now());
        true
    }

    /// The waiting requests, and how many of them should be in one pipeline.
    fn take(&mut self) -> (Vec<Waiting>, usize) {
        self.served_since = None;
        let room = self.waiting.len().min(MOST);
        let waiting = mem::replace(&mut self.waiting, Vec::with_capacity(room));
        (waiting, (MOST_BYTES / self.largest.max(1)).clamp(1, MOST))
    }

    /// Remembers the size of the largest recent answer. A large size is forgotten slowly, because more
    /// answers of this size may follow.
    fn saw(&mut self, largest: usize) {
        self.largest = largest.max(self.largest - self.largest / 8);
    }
}

/// The size of the data in an answer.
fn bytes(answer: &Value) -> usize {
    match answer {
        Value::BulkString(bytes) => bytes.len(),
        Value::Array(parts) => parts.iter().map(bytes).sum(),
        _ => 0,
    }
}

fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

fn broken_off() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}
