//! The invariants of the protocol over random histories of several owners.
//!
//! Owns the histories. The promises, and when one is broken, are in the shadow, which the model check uses too.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use idem_core::protocol::*;

use crate::support::one_key;
use crate::support::rules;

use one_key::OneKey;
use rules::Rules;

const OWNERS: u8 = 4;

/// The clock starts high or at zero, so that fences come from the clock or from the last fence.
#[derive(Clone, Debug)]
enum Op {
    /// A claim, and whether its grant starts the body.
    Claim(Claim, bool),
    /// A request under the claim of this token.
    Holder(Token, Request),
    Resolve(Resolution),
    Tick(u64),
    StepBack(u64),
    Purge,
    Forget,
}

/// The claim of a request.
#[derive(Clone, Debug)]
enum Token {
    /// The last grant.
    Last,
    /// An earlier grant, by its position.
    Earlier(usize),
    /// An owner and a fence of two different grants, or of none.
    Made(u8, u64),
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![
        5 => Just(Token::Last),
        2 => any::<usize>().prop_map(Token::Earlier),
        1 => (0..OWNERS, 0..3u64).prop_map(|(owner, back)| Token::Made(owner, back)),
    ]
}

/// Small, so that random times often hit edges.
fn micros(most: u64) -> impl Strategy<Value = Duration> {
    (1..most).prop_map(Duration::from_micros)
}

fn outcome() -> impl Strategy<Value = (Verdict, StoredResult)> {
    (any::<bool>(), any::<u8>()).prop_map(|(failed, text)| {
        let verdict = if failed { Verdict::Failed } else { Verdict::Completed };
        (verdict, StoredResult::Value(vec![text; usize::from(text % 3)].into()))
    })
}

/// Requests under a claim; the token puts in its owner and its fence.
fn holder() -> impl Strategy<Value = Request> {
    const ANY: (Owner, Fence) = (Owner::NOBODY, Fence::new(0));
    let cause = prop_oneof![
        5 => Just(ReleaseCause::Failed),
        2 => Just(ReleaseCause::Abandoned),
        1 => Just(ReleaseCause::Doubtful),
        2 => Just(ReleaseCause::Unused),
        1 => Just(ReleaseCause::NothingHappened),
    ];
    prop_oneof![
        4 => micros(6).prop_map(|lease| Request::from(Renew::new(ANY.0, ANY.1, lease))),
        4 => (outcome(), micros(12)).prop_map(|((verdict, result), ttl)| {
            Request::from(Complete::new(ANY.0, ANY.1, verdict, result, ttl))
        }),
        4 => (0..4u32, 0..2u8).prop_map(|(position, text)| {
            let result = StoredResult::Value(vec![text].into());
            let step = RecordedStep::new(position.to_string(), None, result);
            Request::from(RecordStep::new(ANY.0, ANY.1, position, step))
        }),
        5 => (cause, 0..4u64).prop_map(|(cause, retry_after)| {
            let release = Release::new(ANY.0, ANY.1, cause);
            Request::from(release.with_retry_after(Duration::from_micros(retry_after)))
        }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let fingerprint = prop_oneof![2 => Just(None), 5 => Just(Some(1)), 1 => Just(Some(2))];
    let most = prop_oneof![3 => Just(None), 1 => (1..4u32).prop_map(NonZeroU32::new)];
    let rare = || prop::bool::weighted(0.25);
    let starts = prop::bool::weighted(0.75);
    let claim = (0..OWNERS, fingerprint, micros(6), micros(12), rare(), most, (rare(), starts)).prop_map(
        |(number, fingerprint, lease, ttl, careful, most, (recovers, starts))| {
            let claim = Claim::new(owner(number), lease, ttl)
                .with_fingerprint(fingerprint.map(|byte| Fingerprint::from_bytes([byte; 32])))
                .with_on_crash(if careful { OnCrash::InDoubt } else { OnCrash::Rerun })
                .with_max_attempts(most)
                .with_recovers(recovers);
            Op::Claim(claim, starts)
        },
    );
    prop_oneof![
        12 => claim,
        17 => (token(), holder()).prop_map(|(token, request)| Op::Holder(token, request)),
        1 => Just(Op::Resolve(Resolution::Release)),
        1 => outcome().prop_map(|(verdict, result)| Op::Resolve(Resolution::Record(verdict, result))),
        8 => (1..7u64).prop_map(Op::Tick),
        1 => (1..4u64).prop_map(Op::StepBack),
        2 => Just(Op::Purge),
        1 => Just(Op::Forget),
    ]
}

fn owner(number: u8) -> Owner {
    Owner::from_bytes([number + 1; 16])
}

/// One key, and every grant it ever made.
struct History {
    key: OneKey,
    grants: Vec<(Owner, Fence)>,
    /// The fences of grants whose bodies were started.
    started: Vec<Fence>,
}

impl History {
    fn token(&self, token: &Token) -> (Owner, Fence) {
        let last = self.grants.last().copied().unwrap_or((owner(0), Fence::new(0)));
        match token {
            Token::Last => last,
            Token::Earlier(place) if self.grants.is_empty() => (owner(0), Fence::new(*place as u64)),
            Token::Earlier(place) => self.grants[place % self.grants.len()],
            Token::Made(number, back) => (owner(*number), Fence::new(last.1.get().saturating_sub(*back))),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Claim(request, starts) => {
                let answer = self.key.apply(Rules::SHIPPED, &request.clone().into());
                if let Ok(ClaimAnswer::Granted(grant)) = ClaimAnswer::try_from(answer)
                    && self.grants.last() != Some(&(request.owner, grant.fence))
                {
                    self.grants.push((request.owner, grant.fence));
                    if *starts && !grant.recover_only {
                        self.started.push(grant.fence);
                        self.key.shadow.started(grant.fence, request.max_attempts);
                    }
                }
            }
            Op::Holder(token, request) => {
                let (owner, fence) = self.token(token);
                let request = self.honest(rules::by(request, owner, fence), fence);
                self.key.apply(Rules::SHIPPED, &request);
            }
            Op::Resolve(word) => {
                self.key.apply(Rules::SHIPPED, &word.clone().into());
            }
            Op::Tick(micros) => self.key.now = self.key.now.after(Duration::from_micros(*micros)),
            Op::StepBack(micros) => {
                self.key.now = Timestamp::from_micros(self.key.now.as_micros().saturating_sub(*micros));
            }
            Op::Purge => self.key.purge(Rules::SHIPPED),
            Op::Forget => self.key.forget(),
        }
    }

    /// A worker does not report that a body did not start if it did, nor that later about a body that it abandoned.
    fn honest(&mut self, request: Request, fence: Fence) -> Request {
        let Request::Release(release) = request else { return request };
        let cause = match release.cause {
            ReleaseCause::Unused | ReleaseCause::NothingHappened | ReleaseCause::Doubtful
                if self.started.contains(&fence) =>
            {
                ReleaseCause::Abandoned
            }
            cause => cause,
        };
        if cause == ReleaseCause::Abandoned {
            self.started.push(fence);
        }
        release.with_cause(cause).into()
    }

    /// Whether a stored record is consistent.
    fn is_whole(&self) -> bool {
        self.key.record.as_ref().is_none_or(|record| {
            let terminal = matches!(record.state, State::Completed | State::Failed);
            let exhausted = record.result == Some(StoredResult::Tombstone(Tombstone::Exhausted));
            let last = self.grants.last().map(|last| last.1);
            // A doubt that was released unused has a fence that no grant has.
            let of_nobody = last.map(|fence| Fence::new(fence.get() + 1));
            let is_last = last == Some(record.fence)
                || record.state != State::InFlight && of_nobody == Some(record.fence);
            let counted =
                record.attempt >= 1 || record.state == State::Released && record.fingerprint.is_none();
            terminal == record.result.is_some()
                && (!terminal || exhausted || record.steps.is_empty())
                && terminal == record.completed_at.is_some()
                && is_endless(record) == record.expires_at.is_none()
                && is_last
                && counted
        })
    }
}

fn holds(start: u64, ops: &[Op]) -> Result<(), TestCaseError> {
    let key = OneKey { now: Timestamp::from_micros(start), ..OneKey::default() };
    let mut history = History { key, grants: Vec::new(), started: Vec::new() };
    for (index, op) in ops.iter().enumerate() {
        history.apply(op);
        let broken = history.key.broken();
        prop_assert!(broken.is_empty(), "step {index}, {op:?}, broke {broken:?}: {:?}", history.key);
        prop_assert!(history.key.can_be_resolved(Rules::SHIPPED), "step {index}, {op:?}: {:?}", history.key);
        prop_assert!(history.is_whole(), "step {index}, {op:?}, left {:?}", history.key.record);
    }
    let fences: Vec<_> = history.grants.iter().map(|grant| grant.1).collect();
    prop_assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_promise(
        start in prop_oneof![Just(0), Just(1_000_000)],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        holds(start, &ops)?;
    }
}

fn claim(number: u8, careful: bool, most: Option<u32>, recovers: bool) -> Op {
    let claim = Claim::new(owner(number), Duration::from_micros(1), Duration::from_micros(9))
        .with_on_crash(if careful { OnCrash::InDoubt } else { OnCrash::Rerun })
        .with_max_attempts(most.and_then(NonZeroU32::new))
        .with_recovers(recovers);
    Op::Claim(claim, !recovers)
}

fn release(cause: ReleaseCause, retry_after: u64) -> Op {
    let release = Release::new(owner(0), Fence::new(0), cause);
    Op::Holder(Token::Last, release.with_retry_after(Duration::from_micros(retry_after)).into())
}

/// A grant that was given back unused leaves a doubt that nobody holds, so no made-up request may pass for its holder.
#[test]
fn a_doubt_that_was_given_back_unused_has_no_holder() {
    let ops = [
        claim(0, true, None, false),
        Op::Tick(1),
        claim(1, true, None, true),
        release(ReleaseCause::Unused, 0),
    ];
    let renewal = || Request::from(Renew::new(owner(0), Fence::new(0), Duration::from_micros(1)));
    let made_up = (0..4).map(|back| Op::Holder(Token::Made(1, back), renewal()));
    let ops: Vec<_> = ops.into_iter().chain(made_up).collect();
    holds(0, &ops).unwrap();
}

/// The copy must not take the attempt back a second time, though the key is in doubt by then.
#[test]
fn a_late_copy_of_an_unused_release_takes_no_other_attempt_back() {
    let ops = [
        claim(0, false, None, false),
        release(ReleaseCause::Abandoned, 0),
        claim(1, false, Some(1), true),
        release(ReleaseCause::Unused, 0),
        claim(0, true, None, false),
        release(ReleaseCause::Unused, 0),
    ];
    holds(0, &ops).unwrap();
}

/// Its lease was over when it was put in doubt, also if it is due later than that.
#[test]
fn a_released_key_that_is_put_in_doubt_has_the_end_of_its_own_lease() {
    let ops = [
        claim(1, false, None, false),
        release(ReleaseCause::Abandoned, 2),
        Op::Tick(2),
        claim(0, true, None, false),
        Op::StepBack(1),
        claim(0, true, None, true),
        claim(2, true, None, true),
    ];
    holds(0, &ops).unwrap();
}
