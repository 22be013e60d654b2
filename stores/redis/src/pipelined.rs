//! A connection on which the requests that are ready at the same moment go to the server together.
//!
//! A request costs this process and the server less if it shares its system calls, its message to the connection's
//! task, and its way back with others. Nobody waits for that: a request is sent at once if few others are unanswered.
//! Otherwise it is sent as soon as the tasks that are ready have run, in one pipeline with what they ask. The server
//! executes the requests of a pipeline one by one, each with its own answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use futures_util::future::{Either, select};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

use super::scripts::Request;

/// How many requests may be unanswered while each is still sent by itself.
const FEW: usize = 4;

/// The largest number of requests in a pipeline.
const MOST: usize = 64;

/// The answers to one pipeline should have at most this many bytes, because the first one arrives with the last one.
const MOST_BYTES: usize = 1 << 20;

/// A request with more bytes is always sent by itself, because a pipeline copies its requests.
const LARGE: usize = 16 << 10;

pub(super) struct Pipelined {
    connection: MultiplexedConnection,
    asked: AtomicU64,
    answered: AtomicU64,
    broken: watch::Sender<bool>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a task will send what waits.
    is_served: bool,
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
        Self {
            connection,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            broken: watch::Sender::new(false),
            queue: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails the requests that are under way, and all later ones.
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
            Place::Alone(_unanswered) => self.alone(&request.command).await,
            // The task that sends it ended with its runtime.
            Place::Together(answer) => answer.await.unwrap_or_else(|_| Err(broken_off())),
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        answer.and_then(Value::extract_error)
    }

    fn place(self: &Arc<Self>, request: &Request) -> Place<'_> {
        let mut queue = self.queue();
        let is_alone = !queue.is_served && queue.unanswered < FEW;
        if is_alone || request.bytes() > LARGE {
            return Place::Alone(self.unanswered(queue, 1));
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiting { command: request.command.clone(), answer });
        let is_served = mem::replace(&mut queue.is_served, true);
        drop(queue);
        if !is_served {
            tokio::spawn(Serving { pipelined: self.clone(), is_over: false }.serve());
        }
        Place::Together(answered)
    }

    fn unanswered(&self, mut queue: MutexGuard<'_, Queue>, count: usize) -> Unanswered<'_> {
        queue.unanswered += count;
        Unanswered { queue: &self.queue, count }
    }

    async fn alone(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        self.unless_broken(connection.req_packed_command(command)).await
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
    async fn together(self: Arc<Self>, lot: Vec<Waiting>) {
        let _unanswered = self.unanswered(self.queue(), lot.len());
        let mut pipeline = Pipeline::with_capacity(lot.len());
        for waiting in &lot {
            pipeline.add_command((*waiting.command).clone());
        }
        let mut connection = self.connection.clone();
        let answers = self.unless_broken(connection.req_packed_commands(&pipeline, 0, lot.len())).await;
        match answers {
            Ok(answers) => {
                self.queue().saw(answers.iter().map(bytes).max().unwrap_or_default());
                for (waiting, answer) in lot.into_iter().zip(answers) {
                    // A caller that went away does not need the answer.
                    let _ = waiting.answer.send(Ok(answer));
                }
            }
            Err(error) => {
                for waiting in lot {
                    let _ = waiting.answer.send(Err(error.clone()));
                }
            }
        }
    }
}

/// How a request goes to the server.
enum Place<'a> {
    Alone(Unanswered<'a>),
    Together(oneshot::Receiver<RedisResult<Value>>),
}

/// Requests that count as unanswered until this is dropped.
struct Unanswered<'a> {
    queue: &'a Mutex<Queue>,
    count: usize,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).unanswered -= self.count;
    }
}

/// The task that sends what waits. If its runtime ends first, what waits gets no answer.
struct Serving {
    pipelined: Arc<Pipelined>,
    is_over: bool,
}

impl Serving {
    async fn serve(mut self) {
        // The other tasks that are ready run first, and may ask for more.
        yield_now().await;
        while !self.is_over {
            let lot = self.pipelined.queue().next_lot();
            self.is_over = lot.is_last;
            let sent = self.pipelined.clone().together(lot.waiting);
            match lot.is_last {
                true => sent.await,
                false => drop(tokio::spawn(sent)),
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            let mut queue = self.pipelined.queue();
            queue.is_served = false;
            queue.waiting.clear();
        }
    }
}

/// The requests of one pipeline.
struct Lot {
    waiting: Vec<Waiting>,
    /// Whether nothing waits after this one.
    is_last: bool,
}

impl Queue {
    fn next_lot(&mut self) -> Lot {
        // Requests whose caller went away are left out, because nobody would use a grant.
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
        let most = (MOST_BYTES / self.largest.max(1)).clamp(1, MOST);
        let waiting: Vec<Waiting> = self.waiting.drain(..self.waiting.len().min(most)).collect();
        self.is_served = !self.waiting.is_empty();
        Lot { waiting, is_last: !self.is_served }
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

fn broken_off() -> redis::RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;
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
    ) -> Vec<Pin<Box<dyn Future<Output = Answer> + 'a>>> {
        let asked = requests.iter().map(|request| {
            let mut answer: Pin<Box<dyn Future<Output = Answer> + 'a>> = Box::pin(pipelined.ask(request));
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
        assert_eq!((counts(pipelined), pipelined.queue().is_served), ((0, 0), false));
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
        yield_now().await;
        pipelined.break_off();
        for answer in join_all(asked).await {
            assert!(answer.unwrap_err().is_io_error());
        }
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
        let waits = |queue: &mut Queue| {
            let mut answers = Vec::new();
            for request in vec![request(&["PING"]); MOST * 2] {
                let (answer, answered) = oneshot::channel();
                queue.waiting.push(Waiting { command: request.command, answer });
                answers.push(answered);
            }
            let lot = queue.next_lot();
            queue.waiting.clear();
            lot.waiting.len()
        };
        let mut queue = pipelined.queue();
        assert_eq!(waits(&mut queue), MOST_BYTES / BYTES);
        // The large answers are forgotten after some small ones.
        let lots = (0..20).map(|_| {
            queue.saw(100);
            waits(&mut queue)
        });
        assert!(lots.collect::<Vec<_>>().is_sorted());
        (0..100).for_each(|_| queue.saw(100));
        assert_eq!(waits(&mut queue), MOST);
        queue.is_served = false;
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
