//! Broken protocols. Each is a bug that a library of this kind had, or a guard of ours left out.
//!
//! Owns the list: [`for_each_mutant`](crate::for_each_mutant) names them all, so that neither the
//! model check nor the conformance kit can miss one.

use super::promise::Promise;
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, OnCrash, Owner, Record, Release,
    ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer, State, Step, StoredResult,
    Timestamp,
};
use super::rules::Rules;

/// Rules that break a promise.
pub trait Mutant: Rules {
    /// What the model must find broken.
    const BREAKS: Promise;
    /// Under which crash policy.
    const UNDER: OnCrash;
}

/// Calls a macro with `test_name: Mutant, PromiseItBreaks, Rerun;` for each mutant.
#[macro_export]
macro_rules! for_each_mutant {
    ($callback:ident) => {
        $callback! {
            complete_without_owner: CompleteWithoutOwner, OnlyTheHolderActs, Rerun;
            release_without_owner: ReleaseWithoutOwner, OnlyTheHolderActs, Rerun;
            renew_without_owner: RenewWithoutOwner, OnlyTheHolderActs, Rerun;
            state_only_guards: StateOnlyGuards, OnlyTheHolderActs, Rerun;
            fence_never_compared: FenceNeverCompared, OnlyTheHolderActs, Rerun;
            resolve_keeps_the_owner: ResolveKeepsTheOwner, OnlyTheHolderActs, InDoubt;
            last_completion_wins: LastCompletionWins, OneResult, Rerun;
            replay_is_empty: ReplayIsEmpty, ReplaysAreTheResult, Rerun;
            lease_as_expiry: LeaseAsExpiry, NothingIsForgotten, Rerun;
            delete_on_failure: DeleteOnFailure, NothingIsForgotten, Rerun;
            delete_on_failure_by_anybody: DeleteOnFailureByAnybody, OnlyTheHolderActs, Rerun;
            expiry_from_creation: ExpiryFromCreation, NothingIsForgotten, Rerun;
            renewal_keeps_expiry: RenewalKeepsExpiry, TheHolderIsHeard, Rerun;
            purge_of_live_results: PurgeOfLiveResults, NothingIsForgotten, Rerun;
            get_then_set: GetThenSet, RunningLeasesAreSafe, Rerun;
            takeover_of_a_running_lease: TakeoverOfARunningLease, RunningLeasesAreSafe, Rerun;
            fence_not_rising: FenceNotRising, FencesRise, Rerun;
            fence_from_the_clock_alone: FenceFromTheClockAlone, FencesRise, Rerun;
            fence_forgotten_with_the_record: FenceForgottenWithTheRecord, FencesRise, Rerun;
            no_claim_by_the_same_owner: NoClaimByTheSameOwner, AskingAgainFindsTheTruth, Rerun;
            completion_not_repeatable: CompletionNotRepeatable, AskingAgainFindsTheTruth, Rerun;
            complete_refused_after_the_lease: CompleteRefusedAfterTheLease, TheHolderIsHeard, Rerun;
            mismatch_only_when_completed: MismatchOnlyWhenCompleted, SameArguments, Rerun;
            in_doubt_rerun: InDoubtRerun, InDoubtStartsOnce, InDoubt;
            in_doubt_expires: InDoubtExpires, InDoubtStartsOnce, InDoubt;
            abandoned_is_released: AbandonedIsReleased, InDoubtStartsOnce, InDoubt;
            one_attempt_too_many: OneAttemptTooMany, AttemptsEnd, Rerun;
            backoff_ignored: BackoffIgnored, AnswersAreTrue, Rerun;
            lapsed_lease_stays_busy: LapsedLeaseStaysBusy, EveryKeyCanBeResolved, Rerun;
        }
    };
}

macro_rules! declare {
    ($($test:ident: $mutant:ident, $promise:ident, $policy:ident;)*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            pub struct $mutant;

            impl Mutant for $mutant {
                const BREAKS: Promise = Promise::$promise;
                const UNDER: OnCrash = OnCrash::$policy;
            }
        )*
    };
}

for_each_mutant!(declare);

fn state(record: Option<&Record>) -> Option<State> {
    record.map(|record| record.state)
}

fn as_if_held(record: Option<&Record>, owner: Owner, fence: Fence) -> (Owner, Fence) {
    record.map_or((owner, fence), |record| (record.owner, record.fence))
}

fn complete_unchecked(record: Option<&Record>, asked: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::complete(record, &Complete { owner, fence, ..asked.clone() }, now)
}

fn release_unchecked(record: Option<&Record>, asked: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::release(record, &Release { owner, fence, ..*asked }, now)
}

fn renew_unchecked(record: Option<&Record>, asked: &Renew, now: Timestamp) -> Step<RenewAnswer> {
    let (owner, fence) = as_if_held(record, asked.owner, asked.fence);
    protocol::renew(record, &Renew { owner, fence, ..*asked }, now)
}

/// What a deleted record leaves behind: nothing that a claim could know.
fn deleted(record: Option<&Record>, now: Timestamp) -> Option<Record> {
    let record = record?.clone();
    Some(Record { fence: Fence::default(), attempt: 0, expires_at: Some(now), ..record })
}

/// The step with the record it writes changed.
fn altered<A>(step: Step<A>, change: impl FnOnce(Record) -> Record) -> Step<A> {
    Step { write: step.write.map(change), answer: step.answer }
}

/// A slow first worker overwrites its successor's result.
impl Rules for CompleteWithoutOwner {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        complete_unchecked(record, request, now)
    }
}

/// A slow first worker frees its successor's claim.
impl Rules for ReleaseWithoutOwner {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        release_unchecked(record, request, now)
    }
}

/// A worker that lost its claim goes on believing it has it.
impl Rules for RenewWithoutOwner {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Step<RenewAnswer> {
        renew_unchecked(record, request, now)
    }
}

/// `WHERE state = 'in flight'` and nothing more.
impl Rules for StateOnlyGuards {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Step<RenewAnswer> {
        renew_unchecked(record, request, now)
    }

    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        complete_unchecked(record.filter(|record| record.state == State::InFlight), request, now)
    }

    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        release_unchecked(record.filter(|record| record.state == State::InFlight), request, now)
    }
}

/// The owner is compared, the fence is not: a request of an earlier grant to the same owner passes.
impl Rules for FenceNeverCompared {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        match record {
            Some(held) if held.owner == request.owner => release_unchecked(record, request, now),
            _ => protocol::release(record, request, now),
        }
    }
}

/// The worker in doubt takes the operator's word for its own.
impl Rules for ResolveKeepsTheOwner {
    fn resolve(record: Option<&Record>, word: &Resolution, now: Timestamp) -> Step<ResolveAnswer> {
        let owner = record.map_or(Owner::NOBODY, |record| record.owner);
        altered(protocol::resolve(record, word, now), |new| Record { owner, ..new })
    }
}

/// A recorded result is replaced by who comes later.
impl Rules for LastCompletionWins {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        match record {
            Some(done) if matches!(done.state, State::Completed | State::Failed) => {
                let again = Record { state: State::InFlight, ..done.clone() };
                complete_unchecked(Some(&again), request, now)
            }
            _ => protocol::complete(record, request, now),
        }
    }
}

/// A duplicate is told that it is one, and nothing more.
impl Rules for ReplayIsEmpty {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let empty = || StoredResult::Value(Default::default());
        let marked =
            record.map(|record| Record { result: record.result.as_ref().map(|_| empty()), ..record.clone() });
        protocol::claim(marked.as_ref(), floor, request, now)
    }
}

/// A time-to-live is the lease: when it is over there is no record, no attempt and no fence.
impl Rules for LeaseAsExpiry {
    fn claim(record: Option<&Record>, _: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        protocol::claim(record.filter(|record| Self::is_live(record, now)), Fence::default(), request, now)
    }

    fn is_live(record: &Record, now: Timestamp) -> bool {
        let lapsed = record.state == State::InFlight && record.lease_until <= now;
        !lapsed && protocol::is_live(record, now)
    }
}

/// A body that fails takes the record along.
impl Rules for DeleteOnFailure {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        let step = protocol::release(record, request, now);
        match step.answer {
            ReleaseAnswer::Lost => step,
            answer => Step { write: deleted(record, now), answer },
        }
    }
}

/// The same, and nobody asks whose record it is.
impl Rules for DeleteOnFailureByAnybody {
    fn release(record: Option<&Record>, _: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        Step { write: deleted(record, now), answer: ReleaseAnswer::Released }
    }
}

/// A body that takes longer than the time-to-live leaves no result.
impl Rules for ExpiryFromCreation {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        altered(protocol::complete(record, request, now), |new| {
            let expires_at = Some(new.created_at.after(new.ttl));
            Record { expires_at, ..new }
        })
    }
}

/// A body that is renewed for long is forgotten while it runs.
impl Rules for RenewalKeepsExpiry {
    fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Step<RenewAnswer> {
        let expires_at = record.and_then(|record| record.expires_at);
        altered(protocol::renew(record, request, now), |new| Record { expires_at, ..new })
    }
}

/// Housekeeping deletes what is done, not what is over.
impl Rules for PurgeOfLiveResults {
    fn is_live(record: &Record, now: Timestamp) -> bool {
        record.state != State::Completed && protocol::is_live(record, now)
    }
}

/// The record is read in one step and written in another.
impl Rules for GetThenSet {
    const CLAIM_IS_ATOMIC: bool = false;
}

/// A client's clock runs ahead and is believed.
impl Rules for TakeoverOfARunningLease {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let lapsed = record.filter(|record| record.state == State::InFlight && record.lease_until > now);
        let lapsed = lapsed.map(|record| Record { lease_until: now, ..record.clone() });
        protocol::claim(lapsed.as_ref().or(record), floor, request, now)
    }
}

fn with_fence(step: Step<ClaimAnswer>, fence: Fence) -> Step<ClaimAnswer> {
    match step {
        Step { write: Some(new), answer: ClaimAnswer::Granted(grant) } => Step {
            write: Some(Record { fence, ..new }),
            answer: ClaimAnswer::Granted(protocol::Grant { fence, ..grant }),
        },
        refused => refused,
    }
}

/// A fence is made once and kept.
impl Rules for FenceNotRising {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let step = protocol::claim(record, floor, request, now);
        match record {
            Some(old) => with_fence(step, old.fence),
            None => step,
        }
    }
}

/// Two grants within one tick of the clock get the same fence.
impl Rules for FenceFromTheClockAlone {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        with_fence(protocol::claim(record, floor, request, now), Fence::new(now.as_micros()))
    }
}

/// A store deletes a record and keeps no floor.
impl Rules for FenceForgottenWithTheRecord {
    fn claim(record: Option<&Record>, _: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        protocol::claim(record, Fence::default(), request, now)
    }
}

/// A lost network answer turns into a stuck key.
impl Rules for NoClaimByTheSameOwner {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let foreign = record.map(|record| Record { owner: Owner::NOBODY, ..record.clone() });
        protocol::claim(foreign.as_ref(), floor, request, now)
    }
}

/// A worker whose answer was lost is told that it failed to record its result.
impl Rules for CompletionNotRepeatable {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        protocol::complete(record.filter(|record| record.state == State::InFlight), request, now)
    }
}

/// A result is thrown away that nobody else has made.
impl Rules for CompleteRefusedAfterTheLease {
    fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
        let over = |record: &&Record| record.state == State::InFlight && record.lease_until <= now;
        protocol::complete(record.filter(|record| !over(record)), request, now)
    }
}

/// Other arguments run under the key until there is a result.
impl Rules for MismatchOnlyWhenCompleted {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        match state(record) {
            Some(State::InFlight | State::Released | State::InDoubt) => {
                let blind = record.map(|record| Record { fingerprint: None, ..record.clone() });
                protocol::claim(blind.as_ref(), floor, request, now)
            }
            _ => protocol::claim(record, floor, request, now),
        }
    }
}

/// The policy is read nowhere.
impl Rules for InDoubtRerun {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let rerun = record.map(|record| Record { on_crash: OnCrash::Rerun, ..record.clone() });
        protocol::claim(rerun.as_ref(), floor, &Claim { on_crash: OnCrash::Rerun, ..request.clone() }, now)
    }
}

/// A claim under `in_doubt` is forgotten like any other.
impl Rules for InDoubtExpires {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        altered(protocol::claim(record, floor, request, now), |new| {
            let expires_at = new.expires_at.or(Some(new.lease_until));
            Record { expires_at, ..new }
        })
    }
}

/// A panic under `in_doubt` is taken for a plain failure.
impl Rules for AbandonedIsReleased {
    fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
        protocol::release(record, &Release { cause: ReleaseCause::Failed, ..*request }, now)
    }
}

/// The first attempt is not counted.
impl Rules for OneAttemptTooMany {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let max_attempts = request.max_attempts.map(|most| most.saturating_add(1));
        protocol::claim(record, floor, &Claim { max_attempts, ..request.clone() }, now)
    }
}

/// A released key is due at once.
impl Rules for BackoffIgnored {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let due = record.map(|record| Record { retry_at: Timestamp::default(), ..record.clone() });
        protocol::claim(due.as_ref(), floor, request, now)
    }
}

/// A worker that dies locks its key for ever.
impl Rules for LapsedLeaseStaysBusy {
    fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
        let step = protocol::claim(record, floor, request, now);
        match (state(record), &step.write) {
            (Some(State::InFlight), Some(_)) => {
                Step { write: None, answer: ClaimAnswer::Busy { retry_after: request.lease } }
            }
            _ => step,
        }
    }

    fn is_live(_: &Record, _: Timestamp) -> bool {
        true
    }
}
