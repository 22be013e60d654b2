//! The operations of one queue that wait or run, and the rules for which of them may start.
//!
//! Knows nothing of sessions and runtimes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::RecordKey;
use tokio::sync::Notify;

use super::operation::{Operation, Waiting};

/// The limit between small and large batches, in operations. If the recent batches of a class were small,
/// another batch may start while fewer than `FEW` operations of the class run. Otherwise only the number of
/// running batches counts.
const FEW: usize = 8;
/// How many batches of renewals, and of reads, may run at a time if the recent batches were larger than
/// [`FEW`]. With two batches of reads, this process handles one while the server works on the other.
const RENEWALS_ABREAST: usize = 1;
const READS_ABREAST: usize = 2;
/// If at least this many operations of one kind wait and they fill a batch, the batch does not wait for
/// running batches.
const MANY: usize = 256;
/// A batch that has run for this long no longer keeps other batches waiting, because it may be waiting for a
/// locked row.
const PATIENCE: Duration = Duration::from_millis(20);

/// The classes of operations, by what they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes wait for the server's disk together.
    Changes,
    /// Renewals do not wait for batches of other classes, so that no lease ends while its renewal waits
    /// behind a large batch.
    Renewals,
    /// Reads do not wait for the disk.
    Reads,
}

/// Which operations of one key may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All operations.
    Any,
    /// At most one operation of a key in each batch.
    OneEach,
    /// A batch may have several operations of a key. No other batch may have the key at the same time,
    /// because the second batch would meet a locked row.
    OneBatch,
}

/// A kind of operations. Only operations of one kind share a batch.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What the operations wait for.
    pub class: Class,
    /// The largest batch, in operations.
    pub most: usize,
    /// Which operations of one key may run at the same time.
    pub keys: Keys,
    /// Whether operations of this kind start before older operations of other kinds, except right after a
    /// batch of this kind. With this priority, callers get their answers early enough to send their next
    /// requests for the next batch. Without it, callers would form two groups that wait for the disk in
    /// turns.
    pub goes_first: bool,
}

/// The facts about a store that the rules need.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) kinds: &'static [Kind],
    pub(super) changes_abreast: usize,
    pub(super) kind: fn(&Operation) -> usize,
    pub(super) weight: fn(&Operation) -> usize,
    pub(super) most_bytes: usize,
}

struct Flight {
    number: u64,
    class: Class,
    count: usize,
    keys: Vec<RecordKey>,
    began: Instant,
    /// When the current attempt of the batch began.
    attempt: Instant,
    /// Notified when the current attempt takes too long.
    late: Arc<Notify>,
}

pub(super) struct Backlog {
    rules: Rules,
    waiting: Vec<VecDeque<Waiting>>,
    flights: Vec<Flight>,
    /// The keys of running batches whose kind has [`Keys::OneBatch`]. No other such batch may have these
    /// keys.
    taken: HashSet<RecordKey>,
    /// The approximate size of recent batches of each class.
    usual: [usize; 3],
    /// The kind of the batch that started last.
    last: usize,
    next_number: u64,
}

/// A batch that a worker has taken. The number identifies the batch while it runs.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) kind: usize,
    pub(super) tickets: Vec<Waiting>,
}

impl Backlog {
    pub(super) fn new(rules: Rules) -> Self {
        let waiting = rules.kinds.iter().map(|_| VecDeque::new()).collect();
        Self {
            rules,
            waiting,
            flights: Vec::new(),
            taken: HashSet::new(),
            usual: [0; 3],
            last: usize::MAX,
            next_number: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn push(&mut self, mut ticket: Waiting) {
        ticket.number = self.number();
        self.waiting[(self.rules.kind)(ticket.operation())].push_back(ticket);
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|tickets| !tickets.is_empty())
    }

    /// Whether another batch of this class may start now.
    fn lets_go(&self, class: Class, now: Instant) -> bool {
        let abreast = match class {
            Class::Changes => self.rules.changes_abreast,
            Class::Renewals => RENEWALS_ABREAST,
            Class::Reads => READS_ABREAST,
        };
        let (mut batches, mut tickets) = (0, 0);
        for flight in &self.flights {
            if flight.class == class && now.duration_since(flight.began) < PATIENCE {
                batches += 1;
                tickets += flight.count;
            }
        }
        if self.usual[class as usize] > FEW { batches < abreast } else { tickets < FEW }
    }

    /// How many running batches are not reads.
    pub(super) fn changes_under_way(&self) -> usize {
        self.flights.iter().filter(|flight| flight.class != Class::Reads).count()
    }

    /// The kind of the next batch: a kind with priority if one may start now, otherwise the kind of the
    /// oldest operation that may start. Leaves out the kinds whose bit in `without` is set.
    fn next_kind(&self, now: Instant, only_reads: bool, without: u32) -> Option<usize> {
        let oldest = |place: usize| {
            let (kind, tickets) = (&self.rules.kinds[place], &self.waiting[place]);
            let first = tickets.front().filter(|_| without & 1 << place == 0)?;
            if only_reads && kind.class != Class::Reads {
                return None;
            }
            let goes = tickets.len() >= kind.most.max(MANY) || self.lets_go(kind.class, now);
            goes.then_some(first.number)
        };
        let order = |(place, number): &(usize, u64)| {
            (!self.rules.kinds[*place].goes_first || self.last == *place, *number)
        };
        let kinds = (0..self.rules.kinds.len()).filter_map(|place| Some((place, oldest(place)?)));
        kinds.min_by_key(order).map(|(place, _)| place)
    }

    pub(super) fn has_work(&self, now: Instant, only_reads: bool) -> bool {
        let mut without = 0;
        while let Some(place) = self.next_kind(now, only_reads, without) {
            if self.waiting[place].iter().any(|ticket| !self.is_taken(place, ticket.operation())) {
                return true;
            }
            without |= 1 << place;
        }
        false
    }

    /// Whether a running batch has the key of this operation, so that the operation must wait.
    fn is_taken(&self, place: usize, operation: &Operation) -> bool {
        self.rules.kinds[place].keys == Keys::OneBatch && self.taken.contains(&operation.key)
    }

    /// Takes the next batch: the operations of one kind that may start together.
    pub(super) fn take(&mut self, now: Instant, only_reads: bool) -> Option<Batch> {
        let mut without = 0;
        loop {
            let place = self.next_kind(now, only_reads, without)?;
            let tickets = self.take_kind(place);
            if !tickets.is_empty() {
                self.last = place;
                return Some(self.depart(place, tickets, now));
            }
            without |= 1 << place;
        }
    }

    fn depart(&mut self, place: usize, tickets: Vec<Waiting>, now: Instant) -> Batch {
        let (kind, count) = (self.rules.kinds[place], tickets.len());
        let usual = &mut self.usual[kind.class as usize];
        *usual = count.max(*usual * 3 / 4);
        let keys = match kind.keys {
            Keys::OneBatch => tickets.iter().map(|ticket| ticket.operation().key.clone()).collect(),
            Keys::Any | Keys::OneEach => Vec::new(),
        };
        self.taken.extend(keys.iter().cloned());
        let (number, late) = (self.number(), Arc::default());
        self.flights.push(Flight { number, class: kind.class, count, keys, began: now, attempt: now, late });
        Batch { number, kind: place, tickets }
    }

    fn take_kind(&mut self, place: usize) -> Vec<Waiting> {
        let kind = self.rules.kinds[place];
        let mut waiting = std::mem::take(&mut self.waiting[place]);
        let (mut tickets, mut left, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        let mut keys = HashSet::new();
        while tickets.len() < kind.most {
            let Some(ticket) = waiting.pop_front() else { break };
            if ticket.is_pointless() {
                continue;
            }
            let operation = ticket.operation();
            if kind.keys == Keys::OneEach && !keys.insert(operation.key.clone())
                || self.is_taken(place, operation)
            {
                left.push_back(ticket);
                continue;
            }
            let weight = (self.rules.weight)(operation);
            if !tickets.is_empty() && bytes + weight > self.rules.most_bytes {
                left.push_back(ticket);
                break;
            }
            bytes += weight;
            tickets.push(ticket);
        }
        left.append(&mut waiting);
        self.waiting[place] = left;
        tickets
    }

    /// Begins an attempt of a batch. The returned value is notified when the attempt takes too long.
    pub(super) fn begin_attempt(&mut self, number: u64, now: Instant) -> Arc<Notify> {
        let late = Arc::<Notify>::default();
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.attempt = now;
            flight.late = late.clone();
        }
        late
    }

    /// Notifies the attempts that began at `since` or earlier.
    pub(super) fn end_attempts(&self, since: Instant) {
        for flight in self.flights.iter().filter(|flight| flight.attempt <= since) {
            flight.late.notify_one();
        }
    }

    /// Notes that a batch has ended.
    pub(super) fn arrive(&mut self, number: u64) {
        let Some(place) = self.flights.iter().position(|flight| flight.number == number) else { return };
        for key in self.flights.swap_remove(place).keys {
            self.taken.remove(&key);
        }
    }

    /// Takes the operations whose deadline is over.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<Waiting> {
        let mut expired = Vec::new();
        for waiting in &mut self.waiting {
            // The operations are in the order of their deadlines, except for the few that were repeated. So
            // this checks all of them.
            if waiting.iter().any(|ticket| ticket.deadline <= now) {
                let (over, left) = waiting.drain(..).partition(|ticket| ticket.deadline <= now);
                *waiting = left;
                expired.append(&mut Vec::from_iter::<VecDeque<_>>(over));
            }
        }
        expired
    }

    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}

#[cfg(test)]
mod tests;
