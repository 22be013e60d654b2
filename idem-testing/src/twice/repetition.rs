//! What is made several times, and the checks after it: the same for requests, messages and calls.
//!
//! Owns when each run begins, when it is dropped, and what must hold. It knows no request and no message.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::try_join_all;
use idem_runtime::ErrorKind;
use idem_runtime::observer::{CallEnd, CallEvent, CallObserver, observed_by};
use tokio::time::{Instant, sleep};

use super::Twice;

/// How long a run is repeated while another one with its key is in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two of those.
const PAUSE: Duration = Duration::from_millis(20);

/// The words for what is made several times.
pub(super) struct Words {
    pub(super) subject: &'static str,
    /// What happened to a run that was dropped.
    pub(super) broke: &'static str,
}

/// What a run returns.
pub(super) trait Answer {
    /// Whether another run with its key is in flight. The idempotent calls of this task say so themselves.
    fn is_busy(&self) -> bool {
        false
    }

    /// Whether a later run must get the same.
    fn is_final(&self) -> bool;

    /// How the other one differs from this.
    fn difference(&self, other: &Self) -> Option<String>;
}

/// What the idempotent calls of a run came to.
#[derive(Default)]
struct Calls {
    /// The operation of the first one.
    operation: OnceLock<String>,
    /// How the last one without a value ended.
    end: Mutex<Option<CallEnd>>,
}

impl CallObserver for Calls {
    fn event(&self, event: &CallEvent<'_>) {
        match event {
            CallEvent::Started { key, .. } => drop(self.operation.set(key.scope().as_str().into())),
            CallEvent::Ended(end) => {
                *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some((*end).clone());
            }
            _ => {}
        }
    }
}

/// A run that returned.
struct Run<A> {
    answer: A,
    is_busy: bool,
    is_final: bool,
    operation: Option<String>,
}

impl<A: Answer> Run<A> {
    /// The run, and what its calls came to; its error.
    async fn of<E>(run: impl Future<Output = Result<A, E>>) -> Result<Self, E> {
        let calls = Arc::new(Calls::default());
        let answer = observed_by(calls.clone(), run).await?;
        let end = calls.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_refused = matches!(&end, Some(CallEnd::Refused(error))
            if matches!(error.kind(), ErrorKind::InFlight | ErrorKind::NotDue));
        let is_busy = is_refused || answer.is_busy();
        let is_final = !is_busy && (answer.is_final() || matches!(end, Some(CallEnd::Terminal)));
        Ok(Self { answer, is_busy, is_final, operation: calls.operation.get().cloned() })
    }
}

/// Whether any check could have failed. A test in which none could fails at its end.
#[derive(Default)]
pub(super) struct Proof {
    /// How many requests had no key.
    unguarded: AtomicU64,
    is_repeated: AtomicBool,
    is_given: AtomicBool,
}

impl Proof {
    #[cfg(feature = "http")]
    pub(super) fn count_unguarded(&self) {
        self.unguarded.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, message: &str) -> ! {
        self.is_given.store(true, Ordering::Relaxed);
        panic!("{message}");
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        if *self.is_given.get_mut() || std::thread::panicking() {
            return;
        }
        if *self.is_repeated.get_mut() {
            panic!(
                "`twice` checked nothing: what it repeated made no idempotent call and raised no effects; put `#[idempotent]` or the \
                 layer around it, or count what it does with `effects`"
            );
        }
        let unguarded = *self.unguarded.get_mut();
        panic!(
            "`twice` checked nothing: of {unguarded} requests none had a key, and only those are repeated; send one with the header \
             `Idempotency-Key` in this test, or leave `twice` out"
        );
    }
}

impl<S> Twice<S> {
    /// All runs, and the checks after them.
    pub(super) async fn repeat<A, E, F, B>(
        &self,
        words: &Words,
        name: Option<String>,
        once: F,
    ) -> Result<A, E>
    where
        A: Answer,
        F: Fn() -> B,
        B: Future<Output = Result<A, E>>,
    {
        let Words { subject, broke } = words;
        let before = self.count().await;
        let (mut runs, breaks) = together(2, &once, self.breaks).await?;
        let after = self.count().await;
        let operation = runs.iter().find_map(|run| run.operation.clone());
        let is_proof = after != before || operation.is_some();
        self.proof.is_repeated.store(true, Ordering::Relaxed);
        self.proof.is_given.fetch_or(is_proof, Ordering::Relaxed);
        let name = name.unwrap_or_else(|| match operation {
            Some(operation) => format!("the {subject} of {operation}"),
            None => format!("the {subject}"),
        });
        let broken = if breaks > 0 { format!(" and {broke} {breaks} times") } else { String::new() };
        if after.abs_diff(before) > 1 {
            self.proof.fail(&format!(
                "{name} did something twice: the effects went from {before} to {after} when the {subject} came twice at the same \
                 time{broken}; one {subject} may raise them by one"
            ));
        }
        // Where no run was answered, the last one may have the effect.
        let is_answered = runs.iter().any(|run| run.is_final);
        runs.extend(together(1, &once, 0).await?.0);
        let last = self.count().await;
        let is_repeated = if is_answered { last != after } else { last.abs_diff(before) > 1 };
        if is_repeated {
            self.proof.fail(&format!(
                "{name} did something twice: the effects went from {before} to {after}, and to {last} when the {subject} came again \
                 after its answer"
            ));
        }
        let mut finals = runs.iter().filter(|run| run.is_final);
        let first = finals.next();
        if let Some(difference) =
            first.and_then(|first| finals.find_map(|run| first.answer.difference(&run.answer)))
        {
            self.proof
                .fail(&format!("{name} answered otherwise when the {subject} came again: {difference}"));
        }
        let position = runs.iter().position(|run| run.is_final).unwrap_or(0);
        Ok(runs.swap_remove(position).answer)
    }

    async fn count(&self) -> u64 {
        match &self.effects {
            Some(effects) => effects().await,
            None => 0,
        }
    }
}

/// So many runs at a time, until one is answered. The first `limit` groups are dropped. Returns the answers, and how many runs were
/// dropped.
async fn together<A, E, F, B>(runs: usize, once: &F, limit: usize) -> Result<(Vec<Run<A>>, usize), E>
where
    A: Answer,
    F: Fn() -> B,
    B: Future<Output = Result<A, E>>,
{
    let (mut waits, mut breaks, patience) = (1, 0, Instant::now() + PATIENCE);
    loop {
        let longest = if waits > limit { usize::MAX } else { waits };
        let is_answered = AtomicBool::new(false);
        let group = (0..runs).map(|_| until_dropped(Run::of(once()), longest, &is_answered));
        let mut answers: Vec<_> = try_join_all(group).await?.into_iter().flatten().collect();
        let dropped = runs - answers.len();
        breaks += dropped;
        if answers.iter().any(|run| !run.is_busy) || Instant::now() > patience {
            answers.sort_by_key(|run| run.is_busy);
            return Ok((answers, breaks));
        }
        if dropped > 0 {
            waits += 1;
        } else {
            sleep(PAUSE).await;
        }
    }
}

/// One run, which is dropped when it has waited so often, unless another one is answered by then.
async fn until_dropped<A, E>(
    run: impl Future<Output = Result<Run<A>, E>>,
    waits: usize,
    is_answered: &AtomicBool,
) -> Result<Option<Run<A>>, E> {
    let (mut run, mut waited) = (pin!(run), 0);
    poll_fn(|cx| match run.as_mut().poll(cx) {
        Poll::Ready(answer) => {
            is_answered.fetch_or(answer.as_ref().is_ok_and(|run| !run.is_busy), Ordering::Relaxed);
            Poll::Ready(answer.map(Some))
        }
        Poll::Pending => {
            waited += 1;
            let is_dropped = waited >= waits && !is_answered.load(Ordering::Relaxed);
            if is_dropped { Poll::Ready(Ok(None)) } else { Poll::Pending }
        }
    })
    .await
}
