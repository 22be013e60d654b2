//! The operations of one queue that wait, those under way, and the rules when which may go.
//!
//! Knows nothing of sessions and runtimes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_core::RecordKey;
use tokio::sync::Notify;

use super::operation::{Operation, Waiting};

/// With fewer operations of a class under way, another batch may go at once, unless recent batches were larger than this.
const FEW: usize = 8;
/// How many batches of renewals, and of reads, may be under way when there are many: two of reads, so that this process works while the
/// server does.
const RENEWALS_ABREAST: usize = 1;
const READS_ABREAST: usize = 2;
/// As many of one kind fill a batch, and wait for no other.
const MANY: usize = 256;
/// A batch that is under way for longer holds up no other: one of its rows may be locked.
const PATIENCE: Duration = Duration::from_millis(20);

/// Operations that wait for the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes wait for the server's disk together.
    Changes,
    /// Renewals wait for nothing else, so that no lease runs out behind a large batch.
    Renewals,
    /// Reads do not wait for the disk.
    Reads,
}

/// Which operations of one key may go at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All.
    Any,
    /// One in each batch.
    OneEach,
    /// All in one batch, and none beside a batch with the key: it would meet a locked row.
    OneBatch,
}

/// A kind of operations. Operations of one kind share a batch.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What they wait for.
    pub class: Class,
    /// The largest batch, in operations.
    pub most: usize,
    /// Which operations of one key may go at the same time.
    pub keys: Keys,
    /// Whether they go before older ones of other kinds, but not twice in a row: the callers that get their answers then ask again in
    /// time for the next batch. Otherwise callers would form two groups that wait for the disk in turns.
    pub goes_first: bool,
}

/// What the rules need to know of a store.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) kinds: &'static [Kind],
    pub(super) changes_abreast: usize,
    pub(super) kind: fn(&Operation) -> usize,
    pub(super) weight: fn(&Operation) -> usize,
    pub(super) most_bytes: usize,
}

/// A batch under way.
struct Flight {
    number: u64,
    class: Class,
    count: usize,
    keys: Vec<RecordKey>,
    began: Instant,
    /// When its present attempt began, and what ends it.
    attempt: Instant,
    late: Arc<Notify>,
}

/// The operations of one queue.
pub(super) struct Backlog {
    rules: Rules,
    waiting: Vec<VecDeque<Waiting>>,
    flights: Vec<Flight>,
    /// The keys of batches under way that no other batch may have.
    taken: HashSet<RecordKey>,
    /// The size of recent batches of each class, about.
    usual: [usize; 3],
    /// The kind that went last.
    last: usize,
    next_number: u64,
}

/// A batch, and its number while it is under way.
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

    /// Whether any operation waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|tickets| !tickets.is_empty())
    }

    /// Whether another batch of this class may go now.
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

    /// How many batches under way are not reads.
    pub(super) fn changes_under_way(&self) -> usize {
        self.flights.iter().filter(|flight| flight.class != Class::Reads).count()
    }

    /// The kind of the oldest operation that may go now, among those whose place is not in `without`.
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

    /// Whether a worker would find something to do.
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

    /// Whether a batch under way has the only operation of this key that may be.
    fn is_taken(&self, place: usize, operation: &Operation) -> bool {
        self.rules.kinds[place].keys == Keys::OneBatch && self.taken.contains(&operation.key)
    }

    /// Takes the oldest operation that may go, and all of its kind that may go with it.
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

    /// Begins another attempt of a batch. The answer is notified when that takes too long.
    pub(super) fn begin_attempt(&mut self, number: u64, now: Instant) -> Arc<Notify> {
        let late = Arc::<Notify>::default();
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.number == number) {
            flight.attempt = now;
            flight.late = late.clone();
        }
        late
    }

    /// Notifies the attempts that began before `since`.
    pub(super) fn end_attempts(&self, since: Instant) {
        for flight in self.flights.iter().filter(|flight| flight.attempt <= since) {
            flight.late.notify_one();
        }
    }

    /// A batch has ended.
    pub(super) fn arrive(&mut self, number: u64) {
        let Some(place) = self.flights.iter().position(|flight| flight.number == number) else { return };
        for key in self.flights.swap_remove(place).keys {
            self.taken.remove(&key);
        }
    }

    /// Takes the operations whose time is over.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<Waiting> {
        let mut expired = Vec::new();
        for waiting in &mut self.waiting {
            // In the order of their deadlines, but for the few that are repeated.
            if waiting.iter().any(|ticket| ticket.deadline <= now) {
                let (over, left) = waiting.drain(..).partition(|ticket| ticket.deadline <= now);
                *waiting = left;
                expired.append(&mut Vec::from_iter::<VecDeque<_>>(over));
            }
        }
        expired
    }

    /// Takes all operations that wait.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.waiting.iter_mut().flat_map(std::mem::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use idem_core::protocol::{Claim, Complete, Fence, Owner, Renew, Request, StoredResult, Verdict};
    use idem_core::{Key, Scope, StoreError};
    use tokio::sync::oneshot::Receiver;

    use super::super::operation::{Answer, Op};
    use super::*;

    const CHANGES: usize = 0;
    const COMPLETIONS: usize = 1;
    const RENEWALS: usize = 2;
    const READS: usize = 3;
    const MOST: usize = 300;

    fn backlog(keys: Keys) -> Backlog {
        let changes = Kind { class: Class::Changes, most: MOST, keys, goes_first: false };
        let kinds = [
            changes,
            Kind { goes_first: true, ..changes },
            Kind { class: Class::Renewals, ..changes },
            Kind { class: Class::Reads, keys: Keys::Any, ..changes },
        ];
        let kind = |operation: &Operation| match &operation.op {
            Op::Get => READS,
            Op::Apply(Request::Renew(_)) => RENEWALS,
            Op::Apply(Request::Complete(_)) => COMPLETIONS,
            _ => CHANGES,
        };
        let (kinds, weight) = (Vec::from(kinds).leak(), Operation::result_bytes);
        Backlog::new(Rules { kinds, changes_abreast: 1, kind, weight, most_bytes: 100 })
    }

    fn claim() -> Op {
        let hour = Duration::from_secs(3_600);
        Op::Apply(Claim::new(Owner::random(), hour, hour).into())
    }

    fn renewal() -> Op {
        Op::Apply(Renew::new(Owner::random(), Fence::new(1), Duration::from_secs(1)).into())
    }

    fn completion_of(bytes: usize) -> Op {
        let result = StoredResult::Value(vec![0; bytes].into());
        let (owner, fence, hour) = (Owner::random(), Fence::new(1), Duration::from_secs(3_600));
        Op::Apply(Complete::new(owner, fence, Verdict::Completed, result, hour).into())
    }

    fn completion() -> Op {
        completion_of(0)
    }

    /// A backlog, and the callers that wait for answers.
    struct Test {
        backlog: Backlog,
        callers: Vec<Receiver<Result<Answer, StoreError>>>,
        now: Instant,
    }

    impl Test {
        fn new(keys: Keys) -> Self {
            Self { backlog: backlog(keys), callers: Vec::new(), now: Instant::now() }
        }

        fn ask_of(&mut self, key: &str, op: Op) {
            let key = RecordKey::new(Scope::new("waiting").unwrap(), Key::new(key).unwrap());
            let deadline = self.now + Duration::from_secs(60);
            let (ticket, answered) = Waiting::new(Arc::new(Operation::new(&key, op)), deadline);
            self.backlog.push(ticket);
            self.callers.push(answered);
        }

        fn ask(&mut self, op: impl Fn() -> Op, count: usize) {
            for _ in 0..count {
                self.ask_of(&format!("{}", self.callers.len()), op());
            }
        }

        fn take(&mut self) -> Option<Batch> {
            self.backlog.take(self.now, false)
        }

        /// The kind and the size of the next batch.
        fn taken(&mut self) -> Option<(usize, usize)> {
            self.take().map(|batch| (batch.kind, batch.tickets.len()))
        }
    }

    #[test]
    fn a_few_go_beside_each_other_and_many_are_waited_for() {
        let mut test = Test::new(Keys::OneEach);
        let mut few = Vec::new();
        for _ in 0..FEW {
            test.ask(claim, 1);
            few.extend(test.take());
        }
        assert_eq!(few.len(), FEW);
        test.ask(claim, 30);
        assert_eq!(test.taken(), None);
        test.backlog.arrive(few.pop().unwrap().number);
        let many = test.take().unwrap();
        assert_eq!(many.tickets.len(), 30);
        // From now on one batch at a time.
        test.ask(claim, 1);
        for batch in few {
            test.backlog.arrive(batch.number);
            assert_eq!(test.taken(), None);
        }
        test.backlog.arrive(many.number);
        // Until there are few again.
        for _ in 0..6 {
            let batch = test.take().unwrap();
            assert_eq!(batch.tickets.len(), 1);
            test.backlog.arrive(batch.number);
            test.ask(claim, 1);
        }
        assert_eq!(test.taken(), Some((CHANGES, 1)));
        test.ask(claim, 1);
        assert_eq!(test.taken(), Some((CHANGES, 1)));
    }

    #[test]
    fn reads_and_renewals_do_not_wait_for_changes() {
        let mut test = Test::new(Keys::OneEach);
        test.ask(claim, 40);
        assert_eq!(test.taken(), Some((CHANGES, 40)));
        test.ask(claim, 40);
        assert_eq!(test.taken(), None);
        test.ask(renewal, 40);
        assert_eq!(test.taken(), Some((RENEWALS, 40)));
        for _ in 0..READS_ABREAST {
            test.ask(|| Op::Get, 20);
            assert_eq!(test.taken(), Some((READS, 20)));
        }
        test.ask(|| Op::Get, 20);
        assert_eq!(test.taken(), None, "two batches of reads are under way");
    }

    #[test]
    fn what_is_under_way_for_long_holds_up_no_other() {
        let mut test = Test::new(Keys::OneEach);
        test.ask(claim, 40);
        assert_eq!(test.taken(), Some((CHANGES, 40)));
        test.ask(claim, 40);
        assert_eq!(test.taken(), None);
        test.now += PATIENCE;
        assert_eq!(test.taken(), Some((CHANGES, 40)));
    }

    #[test]
    fn completions_go_before_older_claims_but_not_twice_in_a_row() {
        let mut test = Test::new(Keys::OneEach);
        test.ask(claim, 2);
        test.ask(completion, 3);
        assert_eq!(test.taken(), Some((COMPLETIONS, 3)));
        test.ask(claim, 1);
        test.ask(completion, 1);
        assert_eq!(test.taken(), Some((CHANGES, 3)));
        assert_eq!(test.taken(), Some((COMPLETIONS, 1)));
    }

    #[test]
    fn as_many_as_fill_a_batch_wait_for_nobody() {
        let mut test = Test::new(Keys::OneEach);
        for _ in 0..3 {
            test.ask(renewal, MOST);
            assert_eq!(test.taken(), Some((RENEWALS, MOST)));
        }
        test.ask(renewal, MOST - 1);
        assert_eq!(test.taken(), None);
    }

    #[test]
    fn a_batch_has_each_key_once_if_it_must() {
        for (keys, sizes) in [(Keys::Any, vec![4]), (Keys::OneEach, vec![2, 1, 1]), (Keys::OneBatch, vec![4])]
        {
            let mut test = Test::new(keys);
            for key in ["a", "a", "b", "a"] {
                test.ask_of(key, claim());
            }
            let taken: Vec<_> = std::iter::from_fn(|| test.taken()).map(|(_, count)| count).collect();
            assert_eq!(taken, sizes, "{keys:?}");
        }
    }

    #[test]
    fn operations_of_one_key_go_in_their_order() {
        let mut test = Test::new(Keys::OneEach);
        for (key, bytes) in [("a", 1), ("a", 2), ("b", 3)] {
            test.ask_of(key, completion_of(bytes));
        }
        let sizes = |batch: Batch| -> Vec<_> {
            batch.tickets.iter().map(|ticket| ticket.operation().result_bytes()).collect()
        };
        assert_eq!(test.take().map(sizes), Some(vec![1, 3]));
        assert_eq!(test.take().map(sizes), Some(vec![2]));
    }

    #[test]
    fn a_key_under_way_keeps_others_of_it_waiting_where_rows_are_locked() {
        let mut test = Test::new(Keys::OneBatch);
        test.ask_of("a", claim());
        let first = test.take().unwrap();
        test.ask_of("a", completion());
        test.ask_of("b", claim());
        // The completion would go first.
        assert!(test.backlog.has_work(test.now, false));
        assert_eq!(test.taken(), Some((CHANGES, 1)));
        // Nobody looks in vain until then, again and again.
        assert!(!test.backlog.has_work(test.now, false));
        assert_eq!(test.taken(), None);
        test.backlog.arrive(first.number);
        assert!(test.backlog.has_work(test.now, false));
        assert_eq!(test.taken(), Some((COMPLETIONS, 1)));
    }

    #[test]
    fn a_batch_is_no_larger_than_it_may_be_but_for_a_single_operation() {
        let mut test = Test::new(Keys::OneEach);
        for bytes in [60, 30, 20, 500, 1] {
            test.ask(|| completion_of(bytes), 1);
        }
        let taken: Vec<_> = std::iter::from_fn(|| test.taken()).map(|(_, count)| count).collect();
        assert_eq!(taken, [2, 1, 1, 1]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_done_unless_it_is_a_result() {
        let mut test = Test::new(Keys::OneEach);
        test.ask(claim, 3);
        test.callers.remove(1);
        assert_eq!(test.taken(), Some((CHANGES, 2)));
        test.ask(completion, 1);
        test.callers.clear();
        assert_eq!(test.taken(), Some((COMPLETIONS, 1)));
    }
}
