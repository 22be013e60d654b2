//! Every short trace (a sequence of requests on one key). In each state that a key can reach in a few
//! requests, the test sends each request of `alphabet`. It compares the answer and the record with those of
//! the pure protocol.
//!
//! Owns the list of traces. The shortest come first, so that the first failing trace is also the shortest
//! that shows the fault.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::alphabet::{self, Scene, Symbol};
use super::asking::{Answer, Ask};
use super::oracle::{Oracle, Wanted, timeless};
use super::{Now, agree, compared};
use crate::conformance::trial::{Broken, Checked, Trial, answered};
use crate::{OperationKind, seed};
use idem_core::protocol::{Fence, Owner, Record, Timestamp, is_live};
use idem_core::{RecordKey, Store};

/// At most this many requests lead to a state.
const DEPTH: usize = 3;
/// A trace does not continue from a state with more attempts or steps than these.
const ATTEMPTS: u32 = 2;
const STEPS: usize = 1;
/// How many traces run at a time if no clock must be advanced between two requests.
const AT_ONCE: usize = 16;
/// How much time passes between two requests, if the kit controls the time.
const PAUSE: Duration = Duration::from_secs(1);

static ALPHABET: LazyLock<Vec<Symbol>> = LazyLock::new(alphabet::all);

/// A key in the pure protocol.
#[derive(Clone)]
struct Model {
    oracle: Oracle,
    key: RecordKey,
    /// The grant before the grant in the record.
    previous: Option<(Owner, Fence)>,
}

impl Model {
    fn new(key: RecordKey, exact: bool) -> Self {
        Self { oracle: Oracle::new(exact), key, previous: None }
    }

    fn ask(&self, symbol: usize) -> Ask {
        ALPHABET[symbol].ask(&Scene { record: self.oracle.record(&self.key), previous: self.previous })
    }

    fn grant(&self) -> Option<(Owner, Fence)> {
        self.oracle.record(&self.key).map(|record| (record.owner, record.fence))
    }

    /// Remembers `before`, the grant that the record had before the last request, if the record has another
    /// grant now.
    fn note_grant(&mut self, before: Option<(Owner, Fence)>) {
        if self.grant() != before {
            self.previous = before;
        }
    }

    /// Everything that a later answer can depend on.
    fn state(&self, now: Timestamp) -> impl Eq + std::hash::Hash + use<> {
        let live = self.oracle.record(&self.key).filter(|record| is_live(record, now));
        let same_owner = live.zip(self.previous).map(|(record, previous)| record.owner == previous.0);
        let due = |record: &Record| (now < record.lease_until, now < record.retry_at);
        (live.map(timeless), live.map(due), same_owner, self.oracle.record(&self.key).is_some())
    }

    /// Whether a trace may continue from this state. Beyond the limits of attempts and steps, nothing new
    /// happens.
    fn is_early(&self) -> bool {
        let record = self.oracle.record(&self.key);
        record.is_none_or(|record| record.attempt <= ATTEMPTS && record.steps.len() <= STEPS)
    }
}

/// The time at which the search for states makes the request with this number.
fn at(number: usize) -> Timestamp {
    Timestamp::default().after(PAUSE * u32::try_from(number + 1).unwrap_or(u32::MAX))
}

/// The shortest trace to each state within [`DEPTH`] requests, the shortest first.
fn states(key: &RecordKey) -> Vec<Vec<usize>> {
    let start = Model::new(key.clone(), true);
    let mut known = HashSet::from([start.state(Timestamp::default())]);
    let mut states = vec![(Vec::new(), start)];
    let mut next = 0;
    while let Some((trace, model)) = states.get(next).cloned() {
        next += 1;
        if trace.len() == DEPTH {
            continue;
        }
        let extends = |symbol: &Symbol| symbol.extends && !(trace.is_empty() && symbol.second);
        for symbol in (0..ALPHABET.len()).filter(|symbol| extends(&ALPHABET[*symbol])) {
            let (mut model, ask, grant) = (model.clone(), model.ask(symbol), model.grant());
            model.oracle.step(&model.key, &ask, at(trace.len()));
            model.note_grant(grant);
            if model.is_early() && known.insert(model.state(at(trace.len()))) {
                states.push(([&trace[..], &[symbol]].concat(), model));
            }
        }
    }
    states.into_iter().map(|(trace, _)| trace).collect()
}

/// All traces: for each state and each symbol, the requests that lead to the state, followed by the symbol.
/// Leaves out the traces of the greatest length that end with a `foreign` request.
fn of(states: &[Vec<usize>]) -> impl Iterator<Item = (&[usize], usize)> {
    let ends = |prefix: &[usize], last: &usize| prefix.len() < DEPTH || !ALPHABET[*last].foreign;
    states.iter().flat_map(move |prefix| {
        (0..ALPHABET.len()).filter(move |last| ends(prefix, last)).map(move |last| (&prefix[..], last))
    })
}

/// Runs the traces that end with a request of this kind, or a sample of them. All traces that record a step
/// belong to [`OperationKind::RecordStep`], even if they end with another request.
pub(in crate::conformance) async fn ending_with(t: &Trial, kind: OperationKind) -> Checked {
    let states = states(&t.key("any")?);
    let chosen = of(&states).filter(|(prefix, last)| {
        let about = |symbol: usize| ALPHABET[symbol].kind();
        let has_steps = prefix.iter().chain([last]).any(|symbol| about(*symbol) == OperationKind::RecordStep);
        if has_steps { kind == OperationKind::RecordStep } else { about(*last) == kind }
    });
    let now = Now::of(t, &mut Oracle::new(t.is_exact())).await?;
    let one_in = t.profile.one_in();
    let first = usize::try_from(seed() % u64::try_from(one_in).unwrap_or(1)).unwrap_or_default();
    let traces = chosen.enumerate().skip(first).step_by(one_in).map(|(number, trace)| {
        let now = &now;
        async move {
            let mut requests = Vec::new();
            let run = run(t, t.key(format!("{number}"))?, now, trace, &mut requests).await;
            run.map_err(|Broken(what)| Broken(format!("{what}, after the last of {requests:#?}")))
        }
    });
    // Two traces at a time would advance the clock for each other.
    let at_once = if t.is_exact() { 1 } else { AT_ONCE };
    stream::iter(traces).buffered(at_once).try_collect().await
}

/// Runs one trace. Compares the answer to its last request, and the record after this request. Shorter
/// traces compare the answers to the earlier requests.
async fn run(
    t: &Trial,
    key: RecordKey,
    now: &Now,
    (prefix, last): (&[usize], usize),
    requests: &mut Vec<Ask>,
) -> Checked {
    let mut model = Model::new(key, t.is_exact());
    for symbol in prefix {
        let (answer, wanted) = send(t, &mut model, now, *symbol, requests).await?;
        // This comparison also gives a new grant's fence to the oracle.
        model.oracle.same_answer(&model.key, &answer, &wanted);
    }
    let store = &t.handles[prefix.len() % t.handles.len()];
    if let Some(record) = answered(store.get(&model.key).await)? {
        model.oracle.adopt(&model.key, record);
    }
    let old = model.oracle.record(&model.key).cloned();
    let (answer, wanted) = send(t, &mut model, now, last, requests).await?;
    agree(&mut model.oracle, &model.key, &answer, &wanted)?;
    compared(store, &mut model.oracle, &model.key, now, (old.as_ref(), wanted.wrote)).await.map(drop)
}

/// Sends one request to the store and to the pure protocol, and adds it to `requests`.
async fn send(
    t: &Trial,
    model: &mut Model,
    now: &Now,
    symbol: usize,
    requests: &mut Vec<Ask>,
) -> Checked<(Answer, Wanted)> {
    if t.is_exact() {
        tokio::time::advance(PAUSE).await;
    }
    let (ask, grant) = (model.ask(symbol), model.grant());
    let store = &t.handles[requests.len() % t.handles.len()];
    requests.push(ask.clone());
    let answer = answered(ask.of(store, &model.key).await)?;
    let wanted = model.oracle.step(&model.key, &ask, now.read());
    model.note_grant(grant);
    Ok((answer, wanted))
}
