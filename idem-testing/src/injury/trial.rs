//! Makes the calls of a trial. It polls each call by hand, so the call's worker can die, pause or lose its
//! caller.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::Poll;

use super::state::{CallId, Injury, Place, State, Target};
use super::store::TrialStore;

/// How many calls [`Trial::answers`] makes at most.
const TRIES: usize = 6;

/// One run of a test: its store, and the calls that are injured.
///
/// Clones are the same trial.
#[derive(Clone)]
pub struct Trial {
    store: TrialStore,
}

/// Why the driver of a call stops polling it.
enum Moment<A> {
    Answered(A),
    Struck(Injury),
}

impl Trial {
    pub(super) fn new(target: Option<Target>) -> Self {
        Self { store: TrialStore::new(State::new(target)) }
    }

    /// The store. Pass it to the function under test.
    #[must_use]
    pub fn store(&self) -> TrialStore {
        self.store.clone()
    }

    /// Makes calls as a client that wants an answer. If a call has no answer, the client calls again after
    /// the lease. After the first answer, it calls once more. All callers that get a value must get the same
    /// value, and this method returns it.
    ///
    /// A crash drops the future of a call and cuts its worker off from the store. So the destructors of the
    /// future run, but they have no effect on the store.
    ///
    /// # Panics
    ///
    /// - if two callers get different values, or no caller gets a value
    /// - if the call that repeats the answered call returns an error, for example because the result does not
    ///   decode
    pub async fn call<T, E, F, B>(&self, call: F) -> T
    where
        T: PartialEq + fmt::Debug,
        E: fmt::Debug,
        F: Fn() -> B,
        B: Future<Output = Result<T, E>>,
    {
        let answers = self.answers(&call).await;
        if !answers.iter().any(Result::is_ok) {
            panic!("no caller is given a value: {answers:?}");
        }
        let mut repeated = self.answers(&call).await;
        let value = match repeated.pop() {
            Some(Ok(value)) => value,
            last => panic!("a call that repeats an answered one is given {last:?}"),
        };
        let other = answers.into_iter().chain(repeated).filter_map(Result::ok).find(|other| *other != value);
        if let Some(other) = other {
            panic!("two callers are given different values: {other:?} and {value:?}");
        }
        value
    }

    /// Makes at most six calls, one after the other, until a call gets a value, or an error that no injury
    /// explains. Returns what all callers got. If an injury adds a caller to a call, the added caller's
    /// answer comes before the answer of the call. Use this method for functions whose errors are answers,
    /// and for `on_crash = "in_doubt"`.
    pub async fn answers<T, E, F, B>(&self, call: &F) -> Vec<Result<T, E>>
    where
        F: Fn() -> B,
        B: Future<Output = Result<T, E>>,
    {
        let mut answers = Vec::new();
        for _ in 0..TRIES {
            let was_struck = self.state().is_struck;
            let answer = self.drive(call, &mut answers).await;
            let is_struck = self.state().is_struck && !was_struck;
            let is_over = answer.as_ref().is_some_and(|answer| answer.is_ok() || !(is_struck || was_struck));
            answers.extend(answer);
            if is_over {
                break;
            }
            self.sleep_beyond_leases().await;
        }
        answers
    }

    /// Makes one call, with the run's injury if it happens in this call. Returns `None` if nobody gets the
    /// answer, because the worker died or the caller went away.
    async fn drive<T, E, F, B>(&self, call: &F, answers: &mut Vec<Result<T, E>>) -> Option<Result<T, E>>
    where
        F: Fn() -> B,
        B: Future<Output = Result<T, E>>,
    {
        let id = self.state().begin();
        let mut future = Box::pin(call());
        let mut successor = None;
        let ended = loop {
            match self.poll(future.as_mut()).await {
                Moment::Answered(answer) => break Some(answer),
                Moment::Struck(Injury::CrashBefore | Injury::CrashAfter) => {
                    self.state().dead.insert(id);
                    break None;
                }
                Moment::Struck(Injury::LeaseLost) => {
                    self.stand_still(id).await;
                    let mut other = Box::pin(call());
                    let other_id = self.state().begin();
                    match poll_fn(|cx| Poll::Ready(other.as_mut().poll(cx))).await {
                        Poll::Ready(answer) => answers.push(answer),
                        Poll::Pending => successor = Some((other_id, other)),
                    }
                    self.go_on(id);
                }
                Moment::Struck(Injury::Superseded) => {
                    self.stand_still(id).await;
                    answers.push(self.other(call).await);
                    self.go_on(id);
                }
                Moment::Struck(Injury::Duplicate) => {
                    answers.push(self.other(call).await);
                    self.go_on(id);
                }
                Moment::Struck(_) => break None,
            }
        };
        if let Some((other_id, other)) = successor {
            self.state().driven = Some(other_id);
            answers.push(other.await);
        }
        self.state().driven = None;
        drop(future);
        // Lets the background work of the call run, as far as it can.
        tokio::task::yield_now().await;
        ended
    }

    /// A call by another worker. It has no injury, because a run has only one.
    async fn other<A, F: Fn() -> B, B: Future<Output = A>>(&self, call: &F) -> A {
        self.state().begin();
        call().await
    }

    /// Pauses the worker of a call, and waits until all leases are over.
    async fn stand_still(&self, call: CallId) {
        self.state().paused = Some(call);
        self.sleep_beyond_leases().await;
    }

    fn go_on(&self, call: CallId) {
        let mut state = self.state();
        state.paused = None;
        state.driven = Some(call);
        drop(state);
        self.store.go_on();
    }

    async fn poll<B: Future>(&self, mut future: Pin<&mut B>) -> Moment<B::Output> {
        poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            let mut state = self.state();
            if let Some(injury) = state.take_raised(cx.waker()) {
                return Poll::Ready(Moment::Struck(injury));
            }
            match polled {
                Poll::Ready(answer) => Poll::Ready(Moment::Answered(answer)),
                Poll::Pending => state
                    .pass(Place::Await)
                    .map_or(Poll::Pending, |injury| Poll::Ready(Moment::Struck(injury))),
            }
        })
        .await
    }

    async fn sleep_beyond_leases(&self) {
        let beyond = self.state().beyond_leases();
        tokio::time::sleep(beyond).await;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.store.state()
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").finish_non_exhaustive()
    }
}
