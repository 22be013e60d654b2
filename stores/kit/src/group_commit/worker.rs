//! Runs a batch on a session.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use idem_core::StoreError;
use tokio::sync::futures::Notified;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::backlog::Batch;
use super::operation::{Answers, Ticket, Waiting, unanswered};
use super::queue::Hold;
use super::server::{Failure, Server};

/// How many times a batch is attempted at most if other transactions conflict with it.
const ROUNDS: usize = 3;
/// The pause before the next attempt after such a conflict.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs batches until there is no more work.
pub(super) async fn work<S: Server>(mut hold: Hold<S>) {
    let queue = hold.queue.clone();
    while let Some(Batch { kind, tickets, .. }) = queue.next(&mut hold) {
        let are_many = tickets.len() > 1;
        hold.run(kind, tickets).await;
        queue.arrive(&mut hold);
        if are_many {
            // Callers that were answered together should be able to send their next requests together.
            yield_now().await;
        }
    }
    hold.is_done = true;
}

impl<S: Server> Hold<S> {
    /// Runs a batch, and repeats the operations that have no answer yet. If the server refuses a batch, runs
    /// each operation alone, so that an error hits only its own operation.
    async fn run(&mut self, kind: usize, tickets: Vec<Waiting>) {
        let is_moved = S::REPEATS_APART && !self.queue.is_own();
        let (mut round, mut parts) = (1, VecDeque::from([tickets]));
        while let Some(mut part) = parts.pop_front().map(still_in_time) {
            if part.is_empty() {
                continue;
            }
            match self.attempt(kind, &part).await {
                Ok(answers) => parts.push_front(answered(part, answers)),
                Err(Failure::Broken(error)) => {
                    part.into_iter().for_each(|ticket| ticket.answer(Err(error.clone())));
                }
                Err(_) if is_moved => parts.push_front(part),
                Err(Failure::Raced(_)) if round < ROUNDS => {
                    round += 1;
                    sleep(PAUSE).await;
                    parts.push_front(part);
                }
                Err(failure) => match part.pop() {
                    Some(only) if part.is_empty() => self.conclude(only, failure).await,
                    last => parts.extend(part.into_iter().chain(last).map(|ticket| vec![ticket])),
                },
            }
            if is_moved {
                parts.drain(..).for_each(|part| self.queue.repeat_apart(part));
            }
        }
    }

    /// Attempts to answer these operations once, within the time of one attempt.
    async fn attempt(&mut self, kind: usize, waiting: &[Waiting]) -> Result<Answers, Failure> {
        let server = &self.queue.server;
        let late = self.queue.begin_attempt(self.number);
        let mut late = pin!(late.notified());
        // Checks the session first, because the store may have left the session's server since the session
        // was last used. If that server is now a replica, it may lack what this process has written.
        let open = match self.session.take() {
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
        let (name, is_own) = (server.name(&open), self.queue.is_own());
        let tickets: Vec<Ticket> = waiting.iter().map(|waiting| waiting.ticket.clone()).collect();
        let attempting = {
            let server = server.clone();
            async move {
                let done = server.attempt(&mut open, kind, &tickets, is_own).await;
                (server.kept(open).await, done)
            }
        };
        let done = self.in_time(name, late, attempting).await;
        let answers = done.unwrap_or_else(|| Err(Failure::late(self.queue.server.timeout())))?;
        if answers.len() == waiting.len() { Ok(answers) } else { Err(Failure::Refused(unanswered())) }
    }

    /// Answers an operation that failed when it ran alone.
    async fn conclude(&mut self, ticket: Waiting, failure: Failure) {
        let (error, late) = (failure.clone().error(), self.queue.begin_attempt(self.number));
        let (server, mut open) = (self.queue.server.clone(), self.session.take());
        let name = open.as_ref().and_then(|open| server.name(open));
        let operation = ticket.ticket.operation.clone();
        let concluding = async move {
            let concluded = server.conclude(&mut open, &operation, failure).await;
            (open, concluded)
        };
        let concluded = self.in_time(name, pin!(late.notified()), concluding).await;
        ticket.answer(concluded.unwrap_or(Err(error)));
    }

    /// Runs this future on a session, within the time limit of an attempt. If the session has a `name`, a
    /// future that takes longer continues, because the server would continue the work anyway.
    async fn in_time<T: Send + 'static>(
        &mut self,
        name: Option<String>,
        late: Pin<&mut Notified<'_>>,
        work: impl Future<Output = (Option<S::Session>, T)> + Send + 'static,
    ) -> Option<T> {
        match select(Box::pin(work), late).await {
            Either::Left(((session, done), _)) => {
                self.session = session;
                Some(done)
            }
            Either::Right((_, work)) => {
                if let Some(name) = name {
                    self.queue.linger(name, async move { work.await.0 });
                }
                None
            }
        }
    }
}

/// Sends the answers, and returns the tickets that must be repeated.
fn answered(tickets: Vec<Waiting>, answers: Answers) -> Vec<Waiting> {
    let mut left = Vec::new();
    for (ticket, answer) in tickets.into_iter().zip(answers) {
        match answer {
            Some(answer) => ticket.answer(answer),
            None => left.push(ticket.repeated()),
        }
    }
    left
}

/// The operations that may still begin. Fails the other operations.
fn still_in_time(tickets: Vec<Waiting>) -> Vec<Waiting> {
    let now = Instant::now();
    let (over, left): (Vec<_>, _) = tickets.into_iter().partition(|ticket| ticket.deadline <= now);
    for ticket in over {
        ticket.answer(Err(StoreError::unavailable(
            "operations before this one took all its time; allow more with `operation_timeout`",
        )));
    }
    left
}

fn not_connected(time: Duration) -> StoreError {
    StoreError::unavailable(format!("the server did not accept the connection within {time:?}"))
}
