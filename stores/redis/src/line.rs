//! Requests that wait for one connection, and go together: above a few callers the server's cost of a command is more
//! than that of what the command does.
//!
//! Owns who goes at once and what goes in one lot. A few requests at a time go alone and wait for nothing; what comes
//! beyond them stands in line while a lot is on its way, and is the next lot. A lot is at most two commands: one script
//! call for all records that scripts change, and one `MGET` for all that are only read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, cmd};
use tokio::sync::oneshot;

use super::connection::is_unknown_script;
use super::scripts::{Request, lot};

/// How many requests go alone at a time.
const ALONE: usize = 8;
/// The most requests of a lot: a script holds up everybody else on the server.
const MOST: usize = 64;
/// About the most bytes of a lot.
const MOST_BYTES: usize = 64 << 10;

/// What a line is for.
pub(super) trait Carries: Send + Sync + 'static {
    /// Asks once.
    fn send(&self, command: &Cmd) -> impl Future<Output = RedisResult<Value>> + Send;
    /// Asks all of them once, in this order.
    fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;
}

/// The requests of one connection.
#[derive(Default)]
pub(super) struct Line {
    alone: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether there is a task that sends them.
    is_served: bool,
}

struct Waiting {
    request: Request,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl Line {
    /// Asks once on `carrier`. Runs in the runtime that drives it.
    pub(super) async fn ask(
        self: &Arc<Self>,
        carrier: &Arc<impl Carries>,
        request: &Request,
    ) -> RedisResult<Value> {
        if !request.goes_in_lots() {
            return carrier.send(&request.command).await;
        }
        if let Some(_alone) = Alone::begin(&self.alone) {
            return carrier.send(&request.command).await;
        }
        let (answer, answered) = oneshot::channel();
        let is_served = {
            let mut queue = self.queue();
            queue.waiting.push(Waiting { request: request.clone(), answer });
            std::mem::replace(&mut queue.is_served, true)
        };
        if !is_served {
            tokio::spawn(serve(self.clone(), carrier.clone()));
        }
        answered.await.unwrap_or_else(|_| Err(broken_off()))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_lot(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        // A claim that nobody waits for must not be granted.
        queue.waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            let has_room = bytes < MOST_BYTES;
            bytes += waiting.request.bytes();
            has_room
        };
        let count = queue.waiting.iter().take(MOST).take_while(fits).count();
        queue.is_served = count > 0;
        (count > 0).then(|| queue.waiting.drain(..count).collect())
    }
}

/// Sends what waits, lot by lot, until nothing does.
async fn serve(line: Arc<Line>, carrier: Arc<impl Carries>) {
    while let Some(lot) = line.next_lot() {
        match <[Waiting; 1]>::try_from(lot) {
            Ok([Waiting { request, answer }]) => {
                // One that went away does not want to know.
                let _ = answer.send(carrier.send(&request.command).await);
            }
            Err(lot) => {
                let (requests, answers): (Vec<Request>, Vec<_>) =
                    lot.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
                let answered = send(&*carrier, &requests).await;
                for (answer, answered) in answers.into_iter().zip(answered) {
                    let _ = answer.send(answered);
                }
            }
        }
    }
}

/// Asks all of them once, with a command for the scripts and one for the reads.
async fn send(carrier: &impl Carries, requests: &[Request]) -> Vec<RedisResult<Value>> {
    let scripts: Vec<&Request> = requests.iter().filter(|request| request.script.is_some()).collect();
    let mut reads = Reads::default();
    let places: Vec<Option<usize>> =
        requests.iter().map(|request| request.key_to_read().map(|key| reads.place(key))).collect();
    let all = lot(&scripts);
    let mut commands = Pipeline::new();
    let mut count = 0;
    if let Some(all) = &all {
        commands.add_command((*all.command).clone());
        count += 1;
    }
    if let Some(read) = reads.command() {
        commands.add_command(read);
        count += 1;
    }
    let mut answers = match carrier.send_all(&commands, count).await {
        Ok(answers) => answers.into_iter(),
        Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut changed = match &all {
        Some(all) => each(with_body(carrier, all, answers.next()).await, scripts.len()),
        None => Vec::new().into_iter(),
    };
    let read: Vec<RedisResult<Value>> = each(found(answers.next()), reads.keys.len()).collect();
    let answer = |place: Option<usize>| match place {
        Some(place) => read[place].clone(),
        None => changed.next().unwrap_or_else(|| Err(broken_off())),
    };
    places.into_iter().map(answer).collect()
}

/// The answer to a script call, which is asked again with the script where the server does not know it.
async fn with_body(carrier: &impl Carries, all: &Request, answer: Option<Value>) -> RedisResult<Value> {
    match found(answer) {
        Err(error) if is_unknown_script(&error) => match all.with_body() {
            Some(call) => found(Some(carrier.send(&call).await?)),
            None => Err(error),
        },
        answer => answer,
    }
}

/// What one command of a pipeline was answered.
fn found(answer: Option<Value>) -> RedisResult<Value> {
    match answer {
        Some(Value::ServerError(error)) => Err(error.into()),
        Some(answer) => Ok(answer),
        None => Err(broken_off()),
    }
}

/// The answers for `count` keys, in order.
fn each(answer: RedisResult<Value>, count: usize) -> std::vec::IntoIter<RedisResult<Value>> {
    let answers: Vec<RedisResult<Value>> = match answer {
        Ok(Value::Array(answers)) if answers.len() == count => {
            answers.into_iter().map(Value::extract_error).collect()
        }
        Ok(_) => (0..count).map(|_| Err(broken_off())).collect(),
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    };
    answers.into_iter()
}

/// The keys of an `MGET`, each of them once.
#[derive(Default)]
struct Reads<'a> {
    keys: Vec<&'a [u8]>,
    places: HashMap<&'a [u8], usize>,
}

impl<'a> Reads<'a> {
    fn place(&mut self, key: &'a [u8]) -> usize {
        *self.places.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() - 1
        })
    }

    fn command(&self) -> Option<Cmd> {
        let mut read = cmd("MGET");
        for key in &self.keys {
            read.arg(*key);
        }
        (!self.keys.is_empty()).then_some(read)
    }
}

/// One of those that go alone.
struct Alone<'a>(&'a AtomicUsize);

impl<'a> Alone<'a> {
    fn begin(alone: &'a AtomicUsize) -> Option<Self> {
        let one_more = |count: usize| (count < ALONE).then_some(count + 1);
        alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(alone))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server may have carried it out.
fn broken_off() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the work on it was broken off").into()
}
