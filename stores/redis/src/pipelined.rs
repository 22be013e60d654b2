//! A connection on which the requests that are ready at the same moment go to the server together.
//!
//! A request costs this process and the server less if it shares its system calls, its message to the connection's
//! task, and its way back with others. Nobody waits for that: a request is sent at once if few others are unanswered.
//! Otherwise it is sent as soon as the tasks that are ready have run, in one pipeline with what they ask. The server
//! executes the requests of a pipeline one by one, each with its own answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use std::{future, io, mem};

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{oneshot, watch};

use super::scripts::Request;

/// How many requests may be unanswered while each is still sent by itself.
const FEW: usize = 4;

/// The largest number of requests in a pipeline.
const MOST: usize = 64;

/// The answers to one pipeline should have at most this many bytes, because the first one arrives with the last one.
const MOST_BYTES: usize = 1 << 20;

/// The size of an answer until some have been seen.
const UNSEEN: usize = MOST_BYTES / 8;

/// A request with more bytes is always sent by itself, because a pipeline copies its requests.
const LARGE: usize = 16 << 10;

/// After this time another task sends what waits: a task may be held up by another one, which does not yield its thread.
const HELD_UP: Duration = Duration::from_millis(5);

pub(super) struct Pipelined {
    connection: MultiplexedConnection,
    asked: AtomicU64,
    answered: AtomicU64,
    broken: watch::Sender<bool>,
    queue: Mutex<Queue>,
}

struct Queue {
    waiting: Vec<Waiting>,
    /// Since when a task has been about to send what waits.
    served_since: Option<Instant>,
    unanswered: usize,
    /// The size of the largest answer of late.
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
            connection,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            broken: watch::Sender::new(false),
            queue: Mutex::new(queue),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails the requests that are under way or wait, and all later ones.
    pub(super) fn break_off(&self) {
        self.broken.send_replace(true);
    }

    /// How many requests were asked and how many answered. The difference includes those that were dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    /// Sends a request once. If the future is dropped, the request may still be sent.
    pub(super) async fn ask(self: &Arc<Self>, request: &Request) -> RedisResult<Value> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = match self.place(request) {
            Place::Alone(unanswered) => self.alone(&request.command, unanswered).await,
            // Without an answer, the task that would have sent it ended with its runtime.
            Place::Together(answer) => {
                let answer = answer.map(|answer| answer.unwrap_or_else(|_| Err(broken_off())));
                self.unless_broken(answer).await
            }
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        answer.and_then(Value::extract_error)
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

    async fn alone(&self, command: &Cmd, _unanswered: Unanswered) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let answer = self.unless_broken(connection.req_packed_command(command)).await;
        if let Ok(answer) = &answer {
            self.queue().saw(bytes(answer));
        }
        answer
    }

    async fn unless_broken<T>(&self, answer: impl Future<Output = RedisResult<T>> + Unpin) -> RedisResult<T> {
        let mut broken = self.broken.subscribe();
        let broken = pin!(broken.wait_for(|broken| *broken));
        match select(answer, broken).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
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

    /// What waits, in the order in which it was asked.
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

/// Requests that count as unanswered until this is dropped.
struct Unanswered {
    pipelined: Arc<Pipelined>,
    count: usize,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.pipelined.queue().unanswered -= self.count;
    }
}

/// The task that sends what waits. If its runtime ends first, what waits gets no answer.
struct Serving {
    pipelined: Arc<Pipelined>,
    is_over: bool,
}

impl Serving {
    async fn serve(mut self) {
        after_what_is_ready().await;
        let lots = self.pipelined.lots();
        self.is_over = true;
        let mut lots = lots.into_iter();
        if lots.len() == 1
            && let Some(lot) = lots.next()
        {
            return self.pipelined.together(lot).await;
        }
        for lot in lots {
            let pipelined = self.pipelined.clone();
            tokio::spawn(async move { pipelined.together(lot).await });
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            let waiting = self.pipelined.queue().take();
            // Wakes those that wait, so not while the queue is locked.
            drop(waiting);
        }
    }
}

/// Lets the other tasks that are ready run, which may ask for more.
///
/// Not tokio's `yield_now`: its task stays with its thread, even if that is held up. This one can be taken by another.
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
    /// Whether a task must be started that sends what waits.
    fn is_to_be_served(&mut self) -> bool {
        let is_served = self.served_since.is_some_and(|since| since.elapsed() < HELD_UP);
        if self.waiting.is_empty() || is_served {
            return false;
        }
        self.served_since = Some(Instant::now());
        true
    }

    /// What waits, and how many of that should be in one pipeline.
    fn take(&mut self) -> (Vec<Waiting>, usize) {
        self.served_since = None;
        let room = self.waiting.len().min(MOST);
        let waiting = mem::replace(&mut self.waiting, Vec::with_capacity(room));
        (waiting, (MOST_BYTES / self.largest.max(1)).clamp(1, MOST))
    }

    /// Remembers the size of the largest answer. An answer is forgotten slowly, because others of its size may follow.
    fn saw(&mut self, largest: usize) {
        self.largest = largest.max(self.largest - self.largest / 8);
    }
}

/// The size of what an answer holds.
fn bytes(answer: &Value) -> usize {
    match answer {
        Value::BulkString(bytes) => bytes.len(),
        Value::Array(parts) => parts.iter().map(bytes).sum(),
        _ => 0,
    }
}

fn broken_off() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::future::join_all;
    use idem_test_servers::Redis;
    use redis::{AsyncConnectionConfig, Client, cmd};
    use tokio::runtime::Builder;

    use super::*;

    type Answer = RedisResult<Value>;

    async fn connected(redis: &Redis) -> Arc<Pipelined> {
        let client = Client::open(redis.url()).unwrap();
        // As those of the store: nothing but the watchdog notices that there is no answer.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Arc::new(Pipelined::new(client.get_multiplexed_async_connection_with_config(&config).await.unwrap()))
    }

    fn request(words: &[&str]) -> Request {
        let mut command = cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        Request::plain(command)
    }

    /// The futures of these requests, each polled once, so that all are asked.
    fn asked<'a>(
        pipelined: &'a Arc<Pipelined>,
        requests: &'a [Request],
    ) -> Vec<Pin<Box<dyn Future<Output = Answer> + Send + 'a>>> {
        let asked = requests.iter().map(|request| {
            let mut answer: Pin<Box<dyn Future<Output = Answer> + Send + 'a>> =
                Box::pin(pipelined.ask(request));
            assert!(answer.as_mut().now_or_never().is_none());
            answer
        });
        asked.collect()
    }

    /// How many wait to be sent, and how many were sent and have no answer.
    fn counts(pipelined: &Pipelined) -> (usize, usize) {
        let queue = pipelined.queue();
        (queue.waiting.len(), queue.unanswered)
    }

    fn nothing_is_left(pipelined: &Pipelined) {
        assert_eq!((counts(pipelined), pipelined.queue().served_since), ((0, 0), None));
    }

    #[tokio::test]
    async fn beyond_a_few_what_is_asked_waits_for_what_is_ready_and_each_gets_its_own_answer() {
        const ALL: usize = MOST + FEW + 20;
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        let name = |number: usize| format!("key/{number}");
        for number in 0..ALL {
            pipelined.ask(&request(&["SET", &name(number), &number.to_string()])).await.unwrap();
        }
        let requests: Vec<Request> = (0..ALL)
            .map(|number| match number % 10 {
                9 => request(&["LPUSH", &name(number), "no list"]),
                _ => request(&["GET", &name(number)]),
            })
            .collect();
        let asked = asked(&pipelined, &requests);
        assert_eq!(counts(&pipelined), (ALL - FEW, FEW));
        for (number, answer) in join_all(asked).await.into_iter().enumerate() {
            match number % 10 {
                9 => assert_eq!(answer.unwrap_err().code(), Some("WRONGTYPE")),
                _ => assert_eq!(answer.unwrap(), Value::BulkString(number.to_string().into())),
            }
        }
        nothing_is_left(&pipelined);
    }

    #[tokio::test]
    async fn what_is_dropped_before_it_is_sent_is_not_sent() {
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        let requests = vec![request(&["INCR", "count"]); FEW + 6];
        let mut asked = asked(&pipelined, &requests);
        asked.truncate(FEW + 2);
        join_all(asked).await;
        let count = pipelined.ask(&request(&["GET", "count"])).await.unwrap();
        assert_eq!(count, Value::BulkString((FEW + 2).to_string().into()));
        let all_dropped = self::asked(&pipelined, &requests);
        drop(all_dropped);
        // Nobody waits for these, so the pipeline has nothing to send.
        pipelined.ask(&request(&["PING"])).await.unwrap();
        nothing_is_left(&pipelined);
    }

    #[tokio::test]
    async fn when_the_connection_is_given_up_all_that_is_under_way_fails() {
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        pipelined.ask(&request(&["CLIENT", "PAUSE", "60000", "ALL"])).await.unwrap();
        let requests = vec![request(&["INCR", "count"]); FEW + 6];
        let asked = asked(&pipelined, &requests);
        tokio::task::yield_now().await;
        pipelined.break_off();
        for answer in join_all(asked).await {
            assert!(answer.unwrap_err().is_io_error());
        }
        // The task that sent them notices by itself.
        tokio::task::yield_now().await;
        nothing_is_left(&pipelined);
    }

    /// The runtime of the connection is driven by nobody, as if a task held it up.
    #[test]
    fn what_waits_to_be_sent_fails_when_the_connection_is_given_up() {
        let redis = Redis::start();
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let held_up = runtime();
        let pipelined = held_up.block_on(connected(&redis));
        let requests = vec![request(&["INCR", "count"]); FEW + 6];
        let asked = held_up.block_on(async { asked(&pipelined, &requests) });
        pipelined.break_off();
        for answer in runtime().block_on(join_all(asked)) {
            assert!(answer.unwrap_err().is_io_error());
        }
        assert_eq!(pipelined.queue().unanswered, 0);
        drop(held_up);
        nothing_is_left(&pipelined);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_holds_up_its_thread_holds_up_no_requests_of_others() {
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        let (begun, begins) = oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let holding_up = tokio::spawn({
            let pipelined = pipelined.clone();
            async move {
                let requests = vec![request(&["INCR", "count"]); FEW + 6];
                let asked = asked(&pipelined, &requests);
                begun.send(()).unwrap();
                // Its thread now neither sends nor yields.
                ends.recv().unwrap();
                join_all(asked).await.into_iter().all(|answer| answer.is_ok())
            }
        });
        begins.await.unwrap();
        let mut others = Vec::new();
        for _ in 0..20 {
            let pipelined = pipelined.clone();
            others.push(tokio::spawn(async move { pipelined.ask(&request(&["PING"])).await }));
            tokio::time::sleep(HELD_UP).await;
        }
        for other in others {
            let answer = tokio::time::timeout(Duration::from_secs(10), other).await;
            assert!(answer.expect("held up").unwrap().is_ok());
        }
        end.send(()).unwrap();
        assert!(holding_up.await.unwrap());
        nothing_is_left(&pipelined);
    }

    #[test]
    fn what_waits_when_its_runtime_ends_fails() {
        let redis = Redis::start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let pipelined = runtime.block_on(connected(&redis));
        let requests = vec![request(&["INCR", "count"]); FEW + 6];
        let mut asked = runtime.block_on(async { asked(&pipelined, &requests) });
        drop(runtime);
        let together = asked.split_off(FEW);
        drop(asked);
        for answer in Builder::new_current_thread().build().unwrap().block_on(join_all(together)) {
            assert!(answer.unwrap_err().is_io_error());
        }
        nothing_is_left(&pipelined);
    }

    #[tokio::test]
    async fn large_answers_go_in_small_pipelines() {
        const BYTES: usize = 300 << 10;
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        pipelined.ask(&request(&["SET", "large", &"a".repeat(BYTES)])).await.unwrap();
        let requests = vec![request(&["GET", "large"]); FEW + 20];
        for _ in 0..2 {
            let asked = asked(&pipelined, &requests);
            for answer in join_all(asked).await {
                assert_eq!(bytes(&answer.unwrap()), BYTES);
            }
        }
        let most = || pipelined.queue().take().1;
        assert_eq!(most(), MOST_BYTES / BYTES);
        // The large answers are forgotten after some small ones, whether these come together or alone.
        let mut seen = vec![most()];
        while most() < MOST {
            assert!(seen.len() < 100, "{seen:?}");
            pipelined.ask(&request(&["PING"])).await.unwrap();
            seen.push(most());
        }
        assert!(seen.is_sorted() && seen.len() > 10, "{seen:?}");
    }

    #[tokio::test]
    async fn the_first_pipelines_are_short_because_their_answers_may_be_large() {
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        assert_eq!(pipelined.queue().take().1, 8);
    }

    #[tokio::test]
    async fn a_large_request_goes_by_itself() {
        let redis = Redis::start();
        let pipelined = connected(&redis).await;
        let large = request(&["SET", "large", &"a".repeat(LARGE)]);
        let requests = [vec![request(&["PING"]); FEW + 1], vec![large]].concat();
        let asked = asked(&pipelined, &requests);
        assert_eq!(counts(&pipelined), (1, FEW + 1));
        assert!(join_all(asked).await.into_iter().all(|answer| answer.is_ok()));
        nothing_is_left(&pipelined);
    }
}
