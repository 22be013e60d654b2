//! The states of workers, network, clock and store together, and the transitions between them.

use super::one_key::OneKey;
use super::protocol::{Owner, ReleaseCause, Resolution, State, StoredResult, Timestamp, Verdict};
use super::setup::Setup;
use super::symmetry;
use super::worker::{self, Call, Doing, Ending, Reply, Worker, owner};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A worker sends a request.
    Send(usize, Call),
    /// The store executes a request, or the first half of a claim that is not atomic.
    Apply(usize),
    /// The answer arrives.
    Deliver(usize),
    /// The answer arrives, and the worker that was granted the key sends this request instead of starting the
    /// body.
    End(usize, Call),
    /// The answer is lost. The same owner sends the request again.
    LoseAnswer(usize),
    /// The worker sends its request again while the first one is still under way.
    AskAgain(usize),
    /// The worker dies; its next call has a new owner.
    Crash(usize),
    /// A late copy of a request arrives; nobody waits for its answer.
    ArriveLate(usize),
    Tick,
    StepBack,
    Purge,
    /// An operator decides.
    Resolve(Resolution),
    Forget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub key: OneKey,
    pub workers: Vec<Worker>,
    pub late: Vec<(usize, u8, Call)>,
    pub resolutions: u8,
    forgets: u8,
    steps_back: u8,
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        Self {
            key: OneKey::default(),
            workers: vec![Worker::new(); setup.workers.len()],
            late: Vec::new(),
            resolutions: setup.resolutions,
            forgets: setup.forgets,
            steps_back: setup.steps_back,
        }
    }

    pub fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        // A history ends at its first broken promise.
        if !self.key.broken().is_empty() {
            return;
        }
        for (index, worker) in self.workers.iter().enumerate() {
            self.actions_of(setup, index, worker, actions);
        }
        for index in 0..self.late.len() {
            actions.push(Action::ArriveLate(index));
        }
        if self.key.now.as_micros() < setup.end {
            actions.push(Action::Tick);
        }
        if self.steps_back > 0 && self.key.now > Timestamp::default() {
            actions.push(Action::StepBack);
        }
        if setup.purges && self.key.may_be_purged(setup.rules) {
            actions.push(Action::Purge);
        }
        let record = self.key.record.as_ref();
        if self.resolutions > 0 && record.is_some_and(|record| record.state == State::InDoubt) {
            let it_happened = Resolution::Record(Verdict::Completed, StoredResult::Value("seen".into()));
            actions.extend([it_happened, Resolution::Release].map(Action::Resolve));
        }
        if self.forgets > 0 && record.is_some() {
            actions.push(Action::Forget);
        }
    }

    fn actions_of(&self, setup: &Setup, index: usize, worker: &Worker, actions: &mut Vec<Action>) {
        let mut send = |call| actions.push(Action::Send(index, call));
        match &worker.doing {
            Doing::Ended(_) if worker.life + 1 >= setup.lives => return,
            Doing::Idle | Doing::Ended(_) => {
                send(Call::Claim { other_arguments: false });
                if setup.other_arguments {
                    send(Call::Claim { other_arguments: true });
                }
                return;
            }
            Doing::Running(fence) => {
                let fence = *fence;
                if setup.renewals {
                    send(Call::Renew { fence });
                }
                for position in 0..setup.steps {
                    send(Call::Step { fence, position });
                }
                send(Call::Complete { fence, failed: false });
                if setup.failures {
                    send(Call::Complete { fence, failed: true });
                }
                send(Call::Release { fence, cause: ReleaseCause::Failed });
                send(Call::Release { fence, cause: ReleaseCause::Abandoned });
            }
            Doing::Waiting { reply: None, .. } => {
                actions.push(Action::Apply(index));
                if self.late.len() < setup.late {
                    actions.push(Action::AskAgain(index));
                }
            }
            Doing::Waiting { reply: Some(Reply::Granted { fence, recovered, recover_only }), .. } => {
                if !recover_only {
                    actions.push(Action::Deliver(index));
                }
                actions.push(Action::LoseAnswer(index));
                let mut end = |call| actions.push(Action::End(index, call));
                let fence = *fence;
                if setup.gives_back {
                    end(Call::Release { fence, cause: ReleaseCause::Unused });
                }
                if setup.recovers && *recovered {
                    end(Call::Complete { fence, failed: false });
                    end(Call::Release { fence, cause: ReleaseCause::Doubtful });
                    end(Call::Release { fence, cause: ReleaseCause::NothingHappened });
                }
            }
            Doing::Waiting { reply: Some(_), .. } => {
                actions.push(Action::Deliver(index));
                actions.push(Action::LoseAnswer(index));
            }
        }
        actions.push(Action::Crash(index));
    }

    pub fn next(&self, setup: &Setup, action: &Action) -> Option<Self> {
        let mut next = self.clone();
        match action {
            Action::Send(index, call) => {
                let worker = &mut next.workers[*index];
                if matches!(worker.doing, Doing::Ended(_)) {
                    worker.life += 1;
                }
                worker.doing = Worker::waits(*call);
            }
            Action::Apply(index) => next.apply(setup, *index)?,
            Action::Deliver(index) => next.deliver(setup, *index)?,
            Action::End(index, call) => next.workers[*index].doing = Worker::waits(*call),
            Action::LoseAnswer(index) => {
                let Doing::Waiting { call, .. } = next.workers[*index].doing else { return None };
                next.workers[*index].doing = Worker::waits(call);
            }
            Action::AskAgain(index) => {
                let Doing::Waiting { call, .. } = next.workers[*index].doing else { return None };
                next.late.push((*index, next.workers[*index].life, call));
                symmetry::sort_late(&mut next.late);
            }
            Action::Crash(index) => next.workers[*index].doing = Doing::Ended(Ending::Crashed),
            Action::ArriveLate(index) => {
                let (worker, life, call) = next.late.remove(*index);
                worker::apply(&mut next.key, setup, owner(worker, life), call, None);
            }
            Action::Tick => next.key.now = Timestamp::from_micros(self.key.now.as_micros() + 1),
            Action::StepBack => {
                next.steps_back -= 1;
                next.key.now = Timestamp::from_micros(self.key.now.as_micros() - 1);
            }
            Action::Purge => next.key.purge(setup.rules),
            Action::Resolve(word) => {
                next.resolutions -= 1;
                next.key.apply(setup.rules, &word.clone().into());
            }
            Action::Forget => {
                next.forgets -= 1;
                next.key.forget();
            }
        }
        if setup.symmetric {
            symmetry::sort(&mut next, setup);
        }
        Some(next)
    }

    fn owner_of(&self, index: usize) -> Owner {
        owner(index, self.workers[index].life)
    }

    fn apply(&mut self, setup: &Setup, index: usize) -> Option<()> {
        let by = self.owner_of(index);
        let Doing::Waiting { call, seen, reply } = &mut self.workers[index].doing else { return None };
        let reads_first = !setup.rules.claim_is_atomic && matches!(call, Call::Claim { .. });
        if reads_first && seen.is_none() {
            *seen = Some(Box::new(self.key.record.clone()));
            return Some(());
        }
        *reply = Some(worker::apply(&mut self.key, setup, by, *call, seen.take().map(|seen| *seen)));
        Some(())
    }

    fn deliver(&mut self, setup: &Setup, index: usize) -> Option<()> {
        let worker = &mut self.workers[index];
        let Doing::Waiting { call, reply: Some(reply), .. } = worker.doing.clone() else { return None };
        worker.take(call, reply);
        if let (Call::Claim { .. }, Doing::Running(fence)) = (call, &worker.doing) {
            self.key.shadow.started(*fence, setup.max_attempts);
        }
        Some(())
    }

    pub fn ended(&self, ending: Ending) -> bool {
        self.workers.iter().any(|worker| worker.doing == Doing::Ended(ending))
    }

    pub fn running(&self) -> usize {
        self.workers.iter().filter(|worker| matches!(worker.doing, Doing::Running(_))).count()
    }
}
