//! The operations that wait for a worker, and the rules when they may go.
//!
//! Knows nothing of connections and runtimes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::operation::{Answer, KINDS, Kind, Operation, Ticket};
use idem_core::StoreError;

/// The largest batch, in operations and in bytes of results.
const MOST: usize = 256;
/// The largest batch of renewals: they are small, and come by the thousand when many bodies begin together.
const MOST_RENEWALS: usize = 1_024;
const MOST_BYTES: usize = 1 << 20;
/// With fewer operations of a class in flight, another batch may go at once, unless recent batches were larger than this.
const FEW: usize = 8;
/// How many batches of each class may be in flight otherwise. One batch of changes, so that the next one collects all others while
/// that one waits for the disk; two of reads, so that this process works while the server does.
const ABREAST: [usize; 2] = [1, 2];

/// The operations of a class that are in flight.
#[derive(Clone, Copy, Default)]
pub(super) struct Travelling {
    tickets: usize,
    batches: usize,
    /// The size of recent batches, about.
    usual: usize,
}

impl Travelling {
    fn depart(&mut self, count: usize) {
        self.tickets += count;
        self.batches += 1;
        self.usual = count.max(self.usual * 3 / 4);
    }

    /// Removes a batch of `count` operations that has ended, or that others need not wait for any more.
    pub(super) fn arrive(&mut self, count: usize) {
        self.tickets -= count;
        self.batches -= 1;
    }

    /// Whether another batch may go at the same time.
    const fn lets_go(&self, class: usize) -> bool {
        if self.usual > FEW { self.batches < ABREAST[class] } else { self.tickets < FEW }
    }
}

#[derive(Default)]
pub(super) struct Backlog {
    pub(super) tickets: [VecDeque<Ticket>; KINDS.len()],
    /// Workers without work. The one that became idle last is woken first, so that workers that are not needed end.
    pub(super) idle: Vec<Arc<Notify>>,
    pub(super) workers: usize,
    /// Workers that were woken and have not looked for work yet.
    pub(super) coming: usize,
    /// The operations in flight, by class.
    pub(super) travelling: [Travelling; 2],
    completed_last: bool,
    next_number: u64,
    pub(super) closed: bool,
}

impl Backlog {
    pub(super) fn push(
        &mut self,
        asked: Arc<Operation>,
        deadline: Instant,
        reply: oneshot::Sender<Result<Answer, StoreError>>,
    ) {
        let (number, kind) = (self.next_number, asked.op.kind());
        self.next_number += 1;
        self.tickets[kind as usize].push_back(Ticket { asked, deadline, number, reply });
    }

    /// Takes the oldest waiting operation and all others of its kind, but each key once.
    pub(super) fn take(&mut self) -> Option<(Kind, Vec<Ticket>)> {
        let now = Instant::now();
        for tickets in &mut self.tickets {
            while tickets.front().is_some_and(|first| first.is_pointless() || first.deadline <= now) {
                if let Some(ticket) = tickets.pop_front() {
                    ticket.answer(Err(StoreError::unavailable(
                        "no connection was free in time; the server is slow, or allow more with `connections`",
                    )));
                }
            }
        }
        let kind = self.next_kind()?;
        self.completed_last = kind == Kind::Completions;
        let tickets = take_kind(kind, &mut self.tickets[kind as usize]);
        if !tickets.is_empty() {
            self.travelling[kind.class()].depart(tickets.len());
        }
        Some((kind, tickets))
    }

    /// The kind of the oldest operation that may go now. Completions go before older operations, but not twice in a row: the
    /// callers that get their answers then claim again in time for the next batch of claims. Otherwise callers would form two
    /// groups that wait for the disk in turns.
    pub(super) fn next_kind(&self) -> Option<Kind> {
        let oldest = |kind: &Kind| {
            let tickets = &self.tickets[*kind as usize];
            let class = kind.class();
            let goes = tickets.len() >= most(*kind).max(MOST) || self.travelling[class].lets_go(class);
            tickets.front().filter(|_| goes).map(|ticket| ticket.number)
        };
        let order = |kind: &Kind| (*kind != Kind::Completions || self.completed_last, oldest(kind));
        KINDS.into_iter().filter(|kind| oldest(kind).is_some()).min_by_key(order)
    }
}

const fn most(kind: Kind) -> usize {
    match kind {
        Kind::Single => 1,
        Kind::Renewals => MOST_RENEWALS,
        _ => MOST,
    }
}

fn take_kind(kind: Kind, tickets: &mut VecDeque<Ticket>) -> Vec<Ticket> {
    let most = most(kind);
    // Claims of one key are answered from one row; see `claims`.
    let together = kind == Kind::Claims || kind == Kind::Reads;
    let mut keys = HashSet::new();
    let (mut taken, mut later, mut weight) = (Vec::new(), VecDeque::new(), 0);
    while taken.len() < most && weight < MOST_BYTES {
        let Some(ticket) = tickets.pop_front() else { break };
        if ticket.is_pointless() {
            continue;
        }
        if together || keys.insert(ticket.asked.key.clone()) {
            weight += ticket.asked.op.weight();
            taken.push(ticket);
        } else {
            later.push_back(ticket);
        }
    }
    while let Some(ticket) = later.pop_back() {
        tickets.push_front(ticket);
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::operation::Op;
    use super::*;
    use idem_core::protocol::{Claim, Complete, Fence, Owner, Renew, StoredResult, Verdict};
    use idem_core::{Key, RecordKey, Scope};

    type Replies = Vec<oneshot::Receiver<Result<Answer, StoreError>>>;

    fn ask(waiting: &mut Backlog, replies: &mut Replies, op: impl Fn() -> Op, count: usize) {
        for number in 0..count {
            let key = Key::new(format!("{}", replies.len() + number)).unwrap();
            let key = RecordKey::new(Scope::new("waiting").unwrap(), key);
            let (reply, answered) = oneshot::channel();
            let deadline = Instant::now() + Duration::from_secs(60);
            waiting.push(Arc::new(Operation { key, op: op() }), deadline, reply);
            replies.push(answered);
        }
    }

    fn renewal() -> Op {
        let lease = Duration::from_secs(1);
        Op::Renew(Renew::new(Owner::random(), Fence::new(1), lease))
    }

    fn claim() -> Op {
        let hour = Duration::from_secs(3_600);
        Op::Claim(Claim::new(Owner::random(), hour, hour))
    }

    fn completion() -> Op {
        let result = StoredResult::Value(Default::default());
        let (owner, fence, verdict) = (Owner::random(), Fence::new(1), Verdict::Completed);
        Op::Complete(Complete::new(owner, fence, verdict, result, Duration::from_secs(1)))
    }

    fn taken(waiting: &mut Backlog) -> Option<(Kind, usize)> {
        waiting.take().map(|(kind, tickets)| (kind, tickets.len()))
    }

    #[tokio::test]
    async fn a_few_go_beside_each_other_and_many_are_waited_for() {
        let (mut waiting, mut replies) = (Backlog::default(), Vec::new());
        for _ in 0..FEW {
            ask(&mut waiting, &mut replies, renewal, 1);
            assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 1)));
        }
        ask(&mut waiting, &mut replies, renewal, 30);
        assert_eq!(taken(&mut waiting), None);
        waiting.travelling[0].arrive(1);
        assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 30)));
        // From now on one batch at a time, until there are few again.
        ask(&mut waiting, &mut replies, renewal, 1);
        for count in [1; FEW - 1] {
            waiting.travelling[0].arrive(count);
            assert_eq!(taken(&mut waiting), None);
        }
        waiting.travelling[0].arrive(30);
        for _ in 0..5 {
            assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 1)));
            ask(&mut waiting, &mut replies, renewal, 1);
            if waiting.travelling[0].usual > FEW {
                assert_eq!(taken(&mut waiting), None);
                waiting.travelling[0].arrive(1);
            }
        }
        assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 1)));
        ask(&mut waiting, &mut replies, renewal, 1);
        assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 1)));
    }

    #[tokio::test]
    async fn what_only_reads_does_not_wait_for_what_writes() {
        let (mut waiting, mut replies) = (Backlog::default(), Vec::new());
        ask(&mut waiting, &mut replies, renewal, 40);
        assert_eq!(taken(&mut waiting), Some((Kind::Renewals, 40)));
        ask(&mut waiting, &mut replies, renewal, 1);
        for _ in 0..2 {
            ask(&mut waiting, &mut replies, || Op::Get, 20);
            assert_eq!(taken(&mut waiting), Some((Kind::Reads, 20)));
        }
        ask(&mut waiting, &mut replies, || Op::Get, 20);
        assert_eq!(taken(&mut waiting), None, "two batches of reads are on their way");
    }

    #[tokio::test]
    async fn completions_go_before_older_claims_but_not_twice_in_a_row() {
        let (mut waiting, mut replies) = (Backlog::default(), Vec::new());
        ask(&mut waiting, &mut replies, claim, 2);
        ask(&mut waiting, &mut replies, completion, 3);
        assert_eq!(taken(&mut waiting), Some((Kind::Completions, 3)));
        ask(&mut waiting, &mut replies, claim, 1);
        ask(&mut waiting, &mut replies, completion, 1);
        assert_eq!(taken(&mut waiting), Some((Kind::Claims, 3)));
        assert_eq!(taken(&mut waiting), Some((Kind::Completions, 1)));
    }

    #[tokio::test]
    async fn as_many_as_fill_a_statement_wait_for_nobody() {
        let (mut waiting, mut replies) = (Backlog::default(), Vec::new());
        for _ in 0..3 {
            ask(&mut waiting, &mut replies, renewal, MOST_RENEWALS);
            assert_eq!(taken(&mut waiting), Some((Kind::Renewals, MOST_RENEWALS)));
        }
        ask(&mut waiting, &mut replies, renewal, MOST_RENEWALS - 1);
        assert_eq!(taken(&mut waiting), None);
    }
}
