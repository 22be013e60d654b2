//! The operations that wait for a worker, and the rules when they may go. Knows nothing of connections and runtimes.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use super::operation::{Op, Ticket};
use idem_core::protocol::Request;
use idem_core::{RecordKey, StoreError};

/// The largest batch, in operations.
const MOST: usize = 256;
/// With fewer operations of a class in flight, another batch may go at once. With more, at most `ABREAST` batches of the class
/// are in flight, so that the next one is larger.
const FEW: usize = 8;
/// How many batches of a class may be in flight when there are `FEW` operations or more.
const ABREAST: usize = 2;

/// What kinds of operations go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Completions,
    /// Other changes of records.
    Changes,
    Reads,
}

/// The classes, in the order of their turns.
const CLASSES: [Class; 3] = [Class::Reads, Class::Completions, Class::Changes];

/// The operations of one class.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Ticket>,
    batches: usize,
    tickets: usize,
}

#[derive(Default)]
pub(super) struct Backlog {
    completions: Lane,
    changes: Lane,
    reads: Lane,
    /// Where in [`CLASSES`] to look first.
    turn: usize,
    /// The keys whose records a batch of this process changes now. Other operations on them wait here instead of for a row lock.
    taken: HashSet<RecordKey>,
    pub(super) workers: usize,
    pub(super) idle: usize,
    pub(super) closed: bool,
}

impl Backlog {
    fn lane(&mut self, class: Class) -> &mut Lane {
        match class {
            Class::Completions => &mut self.completions,
            Class::Changes => &mut self.changes,
            Class::Reads => &mut self.reads,
        }
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        let class = match ticket.asked.op {
            Op::Get => Class::Reads,
            Op::Apply(Request::Complete(_)) => Class::Completions,
            _ => Class::Changes,
        };
        self.lane(class).waiting.push_back(ticket);
    }

    /// Takes the next batch: operations of one class, with at most this many bytes of statements.
    pub(super) fn take(&mut self, most_bytes: usize) -> Option<(Class, Vec<Ticket>)> {
        for turn in 0..CLASSES.len() {
            // In turns: with fewer workers than batches that may be in flight, the first of a fixed order would leave the last none.
            let class = CLASSES[(self.turn + turn) % CLASSES.len()];
            if !self.lane(class).lets_go() {
                continue;
            }
            let tickets = self.take_of(class, most_bytes);
            if !tickets.is_empty() {
                let lane = self.lane(class);
                lane.batches += 1;
                lane.tickets += tickets.len();
                self.turn = (self.turn + turn + 1) % CLASSES.len();
                return Some((class, tickets));
            }
        }
        None
    }

    fn take_of(&mut self, class: Class, most_bytes: usize) -> Vec<Ticket> {
        let now = Instant::now();
        let mut waiting = std::mem::take(&mut self.lane(class).waiting);
        let (mut tickets, mut left, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        let mut keys = HashSet::new();
        while let Some(ticket) = waiting.pop_front() {
            if ticket.reply.is_closed() {
                continue;
            }
            if ticket.deadline <= now {
                ticket.answer(Err(StoreError::unavailable(
                    "no connection was free in time; the server is slow, or allow more with `connections`",
                )));
                continue;
            }
            let weight = ticket.asked.weight();
            if tickets.len() == MOST || !tickets.is_empty() && bytes + weight > most_bytes {
                left.push_back(ticket);
                break;
            }
            let is_taken = class != Class::Reads && self.taken.contains(&ticket.asked.key);
            if is_taken {
                left.push_back(ticket);
            } else {
                bytes += weight;
                keys.insert(ticket.asked.key.clone());
                tickets.push(ticket);
            }
        }
        left.append(&mut waiting);
        self.lane(class).waiting = left;
        if class != Class::Reads {
            self.taken.extend(keys);
        }
        tickets
    }

    /// Removes a batch that has ended.
    pub(super) fn back(&mut self, class: Class, count: usize, keys: &[RecordKey]) {
        let lane = self.lane(class);
        lane.batches -= 1;
        lane.tickets -= count;
        if class != Class::Reads {
            for key in keys {
                self.taken.remove(key);
            }
        }
    }

    /// Whether a worker would find work. It may not: all waiting operations may be on taken keys.
    pub(super) fn has_work(&self) -> bool {
        [&self.completions, &self.changes, &self.reads]
            .into_iter()
            .any(|lane| !lane.waiting.is_empty() && lane.lets_go())
    }

    /// Takes all waiting operations, when no worker is left to run them.
    pub(super) fn abandon(&mut self) -> Vec<Ticket> {
        CLASSES.into_iter().flat_map(|class| std::mem::take(&mut self.lane(class).waiting)).collect()
    }
}

impl Lane {
    const fn lets_go(&self) -> bool {
        self.batches < ABREAST || self.tickets < FEW
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::operation::{Answer, Op, Operation};
    use super::*;
    use idem_core::{Key, Scope};

    type Reply = oneshot::Receiver<Result<Answer, StoreError>>;

    fn ask(backlog: &mut Backlog, name: &str, op: Op) -> Reply {
        let key = RecordKey::new(Scope::new("waiting").unwrap(), Key::new(name).unwrap());
        let (reply, answered) = oneshot::channel();
        let deadline = Instant::now() + Duration::from_secs(60);
        let asked = Arc::new(Operation { key, op });
        backlog.push(Ticket { asked, is_long: false, may_be_done: Default::default(), deadline, reply });
        answered
    }

    fn taken(backlog: &mut Backlog, most_bytes: usize) -> Option<(Class, Vec<RecordKey>)> {
        let (class, tickets) = backlog.take(most_bytes)?;
        Some((class, tickets.into_iter().map(|ticket| ticket.asked.key.clone()).collect()))
    }

    #[test]
    fn operations_on_a_key_go_together_or_one_batch_after_the_other() {
        let mut backlog = Backlog::default();
        let _replies = ["a", "b", "a"].map(|name| ask(&mut backlog, name, Op::Forget));
        let (class, keys) = taken(&mut backlog, usize::MAX).unwrap();
        assert_eq!((class, keys.len()), (Class::Changes, 3));
        let _more = ["a", "c"].map(|name| ask(&mut backlog, name, Op::Forget));
        let (_, others) = taken(&mut backlog, usize::MAX).unwrap();
        assert_eq!(others.len(), 1, "`a` waits");
        assert!(taken(&mut backlog, usize::MAX).is_none());
        backlog.back(Class::Changes, 3, &keys);
        assert_eq!(taken(&mut backlog, usize::MAX).unwrap().1, keys[..1]);
    }

    #[test]
    fn with_one_worker_each_class_has_its_turn() {
        let mut backlog = Backlog::default();
        let (mut replies, mut taken_of) = (Vec::new(), Vec::new());
        for number in 0..6 {
            replies.push(ask(&mut backlog, &format!("read {number}"), Op::Get));
            replies.push(ask(&mut backlog, &format!("changed {number}"), Op::Forget));
            let (class, keys) = taken(&mut backlog, 1).unwrap();
            backlog.back(class, 1, &keys);
            taken_of.push(class);
        }
        let changes = taken_of.iter().filter(|class| **class == Class::Changes).count();
        assert_eq!(changes, 3, "{taken_of:?}");
    }

    #[test]
    fn a_read_waits_for_no_change_of_its_record() {
        let mut backlog = Backlog::default();
        let _first = ask(&mut backlog, "a", Op::Forget);
        assert_eq!(taken(&mut backlog, usize::MAX).unwrap().0, Class::Changes);
        let _second = ask(&mut backlog, "a", Op::Get);
        assert_eq!(taken(&mut backlog, usize::MAX).unwrap().0, Class::Reads);
    }

    #[test]
    fn what_does_not_fit_waits_and_one_always_fits() {
        let mut backlog = Backlog::default();
        let _replies = ["a", "b"].map(|name| ask(&mut backlog, name, Op::Forget));
        assert_eq!(taken(&mut backlog, 1).unwrap().1.len(), 1);
        assert_eq!(taken(&mut backlog, 1).unwrap().1.len(), 1);
    }

    #[test]
    fn many_are_waited_for_and_a_few_are_not() {
        let mut backlog = Backlog::default();
        let mut replies = Vec::new();
        for number in 0..FEW {
            replies.push(ask(&mut backlog, &number.to_string(), Op::Forget));
            assert!(taken(&mut backlog, usize::MAX).is_some(), "{number}");
        }
        replies.push(ask(&mut backlog, "more", Op::Forget));
        assert!(!backlog.has_work() && taken(&mut backlog, usize::MAX).is_none());
        backlog.back(Class::Changes, 1, &[]);
        assert!(taken(&mut backlog, usize::MAX).is_some());
    }

    #[test]
    fn nobody_does_what_nobody_waits_for() {
        let mut backlog = Backlog::default();
        drop(ask(&mut backlog, "a", Op::Forget));
        assert!(taken(&mut backlog, usize::MAX).is_none());
    }
}
