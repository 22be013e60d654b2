//! What is done with a batch on a session.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use idem_core::StoreError;
use tokio::sync::futures::Notified;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::backlog::Batch;
use super::operation::{Answers, Ticket, Waiting, unanswered};
use super::queue::{Hold, Queue};
use super::server::{Failure, Server};

/// How often a batch is attempted when other transactions are in its way.
const ROUNDS: usize = 3;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs batches until there is no more work.
pub(super) async fn work<S: Server>(mut hold: Hold<S>) {
    let queue = hold.queue.clone();
    while let Some(batch) = queue.next(&mut hold) {
        let are_many = batch.tickets.len() > 1;
        run(&queue, &mut hold, batch, true).await;
        if are_many {
            // Those that were answered together ask together, if they can.
            yield_now().await;
        }
    }
    hold.is_done = true;
}

/// Runs one batch.
pub(super) async fn run_alone<S: Server>(mut hold: Hold<S>, batch: Batch) {
    let queue = hold.queue.clone();
    run(&queue, &mut hold, batch, false).await;
    hold.is_done = true;
}

/// Removes a batch from those under way, also if it is dropped.
struct UnderWay<'h, S: Server> {
    queue: Arc<Queue<S>>,
    hold: &'h mut Hold<S>,
    number: u64,
    looks: bool,
}

impl<S: Server> Drop for UnderWay<'_, S> {
    fn drop(&mut self) {
        self.queue.arrive(self.number, self.hold, self.looks && !std::thread::panicking());
    }
}

/// Runs a batch at once. If the server refuses it, runs each operation alone, so that an error hits only its own operation.
async fn run<S: Server>(queue: &Arc<Queue<S>>, hold: &mut Hold<S>, batch: Batch, looks: bool) {
    let Batch { number, kind, mut tickets } = batch;
    let under_way = UnderWay { queue: queue.clone(), hold, number, looks };
    let session = &mut under_way.hold.session;
    let is_moved = S::REPEATS_APART && !queue.is_own();
    let mut round = 1;
    while !tickets.is_empty() {
        match attempt(queue, session, number, kind, &tickets).await {
            Ok(answers) => tickets = answered(tickets, answers),
            Err(Failure::Broken(error)) => {
                for ticket in std::mem::take(&mut tickets) {
                    ticket.answer(Err(error.clone()));
                }
            }
            Err(_) if is_moved => {}
            Err(Failure::Raced(_)) if round < ROUNDS => {
                round += 1;
                sleep(PAUSE).await;
                continue;
            }
            Err(failure) => {
                let is_alone = tickets.len() == 1;
                for ticket in std::mem::take(&mut tickets) {
                    if is_alone {
                        conclude(queue, session, number, ticket, failure.clone()).await;
                    } else {
                        alone(queue, session, number, kind, ticket).await;
                    }
                }
            }
        }
        if is_moved {
            queue.repeat_apart(std::mem::take(&mut tickets));
        }
    }
}

/// Sends the answers, and returns the tickets that must be repeated.
fn answered(tickets: Vec<Waiting>, answers: Answers) -> Vec<Waiting> {
    let now = Instant::now();
    let mut left = Vec::new();
    for (ticket, answer) in tickets.into_iter().zip(answers) {
        match answer {
            Some(answer) => ticket.answer(answer),
            None if ticket.deadline <= now => ticket.answer(Err(late_by_others())),
            None => left.push(ticket.repeated()),
        }
    }
    left
}

/// The error of an operation that was not begun because those before it took too long.
fn late_by_others() -> StoreError {
    StoreError::unavailable(
        "operations before this one took all its time; allow more with `operation_timeout`",
    )
}

async fn alone<S: Server>(
    queue: &Arc<Queue<S>>,
    session: &mut Option<S::Session>,
    number: u64,
    kind: usize,
    ticket: Waiting,
) {
    if ticket.deadline <= Instant::now() {
        return ticket.answer(Err(late_by_others()));
    }
    match attempt(queue, session, number, kind, std::slice::from_ref(&ticket)).await {
        Ok(answers) => match answers.into_iter().next().flatten() {
            Some(answer) => ticket.answer(answer),
            None => ticket.answer(Err(unanswered())),
        },
        Err(failure) => conclude(queue, session, number, ticket, failure).await,
    }
}

async fn conclude<S: Server>(
    queue: &Arc<Queue<S>>,
    session: &mut Option<S::Session>,
    number: u64,
    ticket: Waiting,
    failure: Failure,
) {
    if let Failure::Broken(error) = failure {
        return ticket.answer(Err(error));
    }
    let (error, late) = (failure.clone().error(), queue.begin_attempt(number));
    let (server, mut open) = (queue.server.clone(), session.take());
    let name = open.as_ref().and_then(|open| server.name(open));
    let operation = ticket.ticket.operation.clone();
    let concluding = async move {
        let concluded = server.conclude(&mut open, &operation, failure).await;
        (open, concluded)
    };
    match in_time(queue, name, pin!(late.notified()), concluding).await {
        Some((open, concluded)) => {
            *session = open;
            ticket.answer(concluded);
        }
        None => ticket.answer(Err(error)),
    }
}

/// Does this on a session, within the time of an attempt. What takes longer goes on if the session has a `name`: its server would be
/// at work on it anyway.
async fn in_time<S: Server, T: Send + 'static>(
    queue: &Arc<Queue<S>>,
    name: Option<String>,
    late: Pin<&mut Notified<'_>>,
    work: impl Future<Output = (Option<S::Session>, T)> + Send + 'static,
) -> Option<(Option<S::Session>, T)> {
    match select(Box::pin(work), late).await {
        Either::Left((done, _)) => Some(done),
        Either::Right((_, work)) => {
            if let Some(name) = name {
                queue.linger(name, async move { work.await.0 });
            }
            None
        }
    }
}

/// Runs a batch once, within the time of one attempt.
async fn attempt<S: Server>(
    queue: &Arc<Queue<S>>,
    session: &mut Option<S::Session>,
    number: u64,
    kind: usize,
    waiting: &[Waiting],
) -> Result<Answers, Failure> {
    let server = &queue.server;
    let late = queue.begin_attempt(number);
    let mut late = pin!(late.notified());
    // Others may have left the server of this session since: a replica may lack what this process has written.
    let open = match session.take() {
        Some(open) => server.kept(open).await,
        None => None,
    };
    let mut open = match open {
        Some(open) => open,
        None => match select(pin!(server.open()), late.as_mut()).await {
            // The other operations of the batch could not connect either, so all of them get this error.
            Either::Left((opened, _)) => opened.map_err(Failure::Broken)?,
            Either::Right(_) => return Err(Failure::Broken(not_connected(server.timeout()))),
        },
    };
    let (name, is_own) = (server.name(&open), queue.is_own());
    let tickets: Vec<Ticket> = waiting.iter().map(|waiting| waiting.ticket.clone()).collect();
    let attempting = {
        let server = server.clone();
        async move {
            let done = server.attempt(&mut open, kind, &tickets, is_own).await;
            (server.kept(open).await, done)
        }
    };
    let (kept, done) = in_time(queue, name, late, attempting)
        .await
        .unwrap_or_else(|| (None, Err(Failure::late(server.timeout()))));
    *session = kept;
    let answers = done?;
    if answers.len() == waiting.len() { Ok(answers) } else { Err(Failure::Refused(unanswered())) }
}

fn not_connected(time: Duration) -> StoreError {
    StoreError::unavailable(format!("the server did not accept the connection within {time:?}"))
}
