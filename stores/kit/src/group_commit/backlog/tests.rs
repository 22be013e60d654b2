use idem_core::protocol::{Claim, Complete, Fence, Owner, Renew, Request, StoredResult, Verdict};
use idem_core::{Key, Scope, StoreError};
use tokio::sync::oneshot::Receiver;

use super::super::operation::{Answer, Op};
use super::*;

const CHANGES: usize = 0;
const COMPLETIONS: usize = 1;
const RENEWALS: usize = 2;
const READS: usize = 3;

fn backlog(keys: Keys) -> Backlog {
    let changes = Kind { class: Class::Changes, most: 300, keys, goes_first: false };
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
    // From now on, one batch runs at a time, because a recent batch was large.
    test.ask(claim, 1);
    for batch in few {
        test.backlog.arrive(batch.number);
        assert_eq!(test.taken(), None);
    }
    test.backlog.arrive(many.number);
    // Several batches may run again after the recent batches were small.
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
fn a_batch_has_each_key_once_if_it_must() {
    for (keys, sizes) in [(Keys::Any, vec![4]), (Keys::OneEach, vec![2, 1, 1]), (Keys::OneBatch, vec![4])] {
        let mut test = Test::new(keys);
        for key in ["a", "a", "b", "a"] {
            test.ask_of(key, claim());
        }
        let sizes_of_batches: Vec<_> = std::iter::from_fn(|| test.taken()).map(|(_, count)| count).collect();
        assert_eq!(sizes_of_batches, sizes, "{keys:?}");
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
    // The completion would start first, but a running batch has its key.
    assert!(test.backlog.has_work(test.now, false));
    assert_eq!(test.taken(), Some((CHANGES, 1)));
    // Until the first batch ends, `has_work` returns `false`, so no worker keeps looking in vain.
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
    let sizes_of_batches: Vec<_> = std::iter::from_fn(|| test.taken()).map(|(_, count)| count).collect();
    assert_eq!(sizes_of_batches, [2, 1, 1, 1]);
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
