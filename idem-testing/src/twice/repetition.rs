//! Repeats a run and checks the results, in the same way for requests, messages and calls.
//!
//! Decides when each run begins and when it is dropped, and owns the rules that the results must keep. Knows
//! no request and no message.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::try_join_all;
use idem_runtime::Error;
use idem_runtime::observer::{CallEnd, CallEvent, CallObserver, observed_by};
use tokio::time::{Instant, sleep};

use super::Twice;

/// How long a run is repeated while another run with its key is in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an answer means for its client. The test gets the answer whose meaning comes first in this list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerKind {
    /// Every later run must get the same answer.
    Final,
    /// The client may try again.
    Retryable,
    /// Another run with the key is in flight, or the key is not due yet.
    InFlight,
}

/// What a run returns.
pub(super) trait Answer {
    /// The meaning of the answer, if the idempotent calls of the run do not report a meaning.
    fn kind(&self) -> AnswerKind;

    /// How the other answer differs from this one. Empty if the two are the same.
    fn difference(&self, other: &Self) -> String;
}

/// What is known of the idempotent calls of a run: the operation of the first call, and how the last call
/// ended.
#[derive(Default)]
struct Calls(Mutex<(Option<String>, Option<AnswerKind>)>);

impl CallObserver for Calls {
    fn event(&self, event: &CallEvent<'_>) {
        let (operation, kind) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            CallEvent::Started { key, .. } => {
                operation.get_or_insert_with(|| key.scope().as_str().to_owned());
                *kind = None;
            }
            CallEvent::Ended(CallEnd::Terminal) => *kind = Some(AnswerKind::Final),
            CallEvent::Ended(CallEnd::Refused(Error::InFlight { .. } | Error::NotDue { .. })) => {
                *kind = Some(AnswerKind::InFlight);
            }
            _ => {}
        }
    }
}

/// A run that returned, what its answer means, and the operation of its first idempotent call.
type Run<A> = (A, AnswerKind, Option<String>);

/// Whether any check could have failed. If no check could, the test fails at its end.
#[derive(Default)]
pub(super) struct Proof(AtomicBool);

impl Drop for Proof {
    fn drop(&mut self) {
        assert!(
            *self.0.get_mut() || std::thread::panicking(),
            "`twice` checked nothing: it repeats requests with the header of the key, messages and calls, and none of them made an \
             idempotent call or raised the effects; put `#[idempotent]` or the layer around what they do, or count it with `effects`"
        );
    }
}

impl<S, K> Twice<S, K> {
    /// Makes all runs, and checks them. The message of a failure says what was repeated: `name`, or if that
    /// is `None`, `subject` and the operation.
    pub(super) async fn repeat<A, E, B, F>(&self, subject: &str, name: Option<&str>, once: F) -> Result<A, E>
    where
        F: Fn() -> B,
        A: Answer,
        B: Future<Output = Result<A, E>>,
    {
        let before = (self.effects)().await;
        let (mut runs, drops) = together(2, &once, self.breaks).await?;
        let after = (self.effects)().await;
        // If no run of the pair got a final answer, the last run may have the effect.
        let is_answered = runs.iter().any(|(_, kind, _)| *kind == AnswerKind::Final);
        runs.extend(together(1, &once, 0).await?.0);
        let last = (self.effects)().await;

        let operation = runs.iter_mut().find_map(|(_, _, operation)| operation.take());
        // The test gets the first final answer, if there is one.
        runs.sort_by_key(|(_, kind, _)| *kind);
        let (answer, ..) = runs.remove(0);
        let others = runs.iter().filter(|(_, kind, _)| *kind == AnswerKind::Final);
        let mut differences = others.map(|(other, ..)| answer.difference(other));
        let difference = differences.find(|difference| !difference.is_empty()).unwrap_or_default();
        let is_proof = operation.is_some() || !difference.is_empty() || [after, last] != [before; 2];
        self.proof.0.fetch_or(is_proof, Ordering::Relaxed);

        let of = operation.map(|operation| format!(" of {operation}")).unwrap_or_default();
        let name = name.map_or_else(|| format!("the {subject}{of}"), str::to_owned);
        let dropped = if drops > 0 { format!(" and was dropped {drops} times") } else { String::new() };
        assert!(
            last.abs_diff(before) <= 1 && (last == after || !is_answered),
            "{name} did something twice: the effects went from {before} to {after} when it came twice at the same time{dropped}, and \
             to {last} when it came again; one {subject} may raise them by one"
        );
        assert!(difference.is_empty(), "{name} answered otherwise when it came again: {difference}");
        Ok(answer)
    }
}

/// Makes groups of `count` concurrent runs, one group after the other. Stops when a run gets another answer
/// than `InFlight`, or when no group was dropped for `PATIENCE`. The first group is dropped when it has
/// waited once. Each later group is dropped one wait later than the group before it, up to `limit` groups.
/// Returns the last group, and how many groups were dropped.
async fn together<A: Answer, E, B: Future<Output = Result<A, E>>>(
    count: usize,
    once: &impl Fn() -> B,
    limit: usize,
) -> Result<(Vec<Run<A>>, usize), E> {
    let (mut drops, mut patience) = (0, Instant::now() + PATIENCE);
    loop {
        let is_answered = AtomicBool::new(false);
        let run = || async {
            let calls = Arc::new(Calls::default());
            let answer = observed_by(calls.clone(), once()).await?;
            let (operation, kind) =
                std::mem::take(&mut *calls.0.lock().unwrap_or_else(PoisonError::into_inner));
            let kind = kind.unwrap_or_else(|| answer.kind());
            is_answered.fetch_or(kind != AnswerKind::InFlight, Ordering::Relaxed);
            Ok::<_, E>((answer, kind, operation))
        };
        let mut group = pin!(try_join_all((0..count).map(|_| run())));
        let mut waits = 0;
        let runs = poll_fn(|cx| {
            let runs = group.as_mut().poll(cx).map(Some);
            waits += 1;
            let may_drop = drops < limit && waits > drops && !is_answered.load(Ordering::Relaxed);
            if runs.is_pending() && may_drop { Poll::Ready(None) } else { runs }
        });
        match runs.await.transpose()? {
            None => (drops, patience) = (drops + 1, Instant::now() + PATIENCE),
            Some(runs) if is_answered.load(Ordering::Relaxed) || Instant::now() > patience => {
                return Ok((runs, drops));
            }
            Some(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
