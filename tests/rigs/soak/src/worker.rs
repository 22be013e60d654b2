//! One worker: the operation under test, and its calls.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idem::testing::{FaultStore, Rates};
use idem::{DynStore, LateRecording, OnCrash, Operation, Outcome, SqliteStore, observe};
use idem_test_servers::Ledger;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rig_stores::{Choice, StoreUrl};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, LANES, LEASE};

/// Keys that are multiples of this number use `on_crash = "in_doubt"`, so their bodies run at most once.
const CAREFUL: u32 = 8;

/// Whether a key's body runs at most once.
pub(crate) const fn is_careful(key: u32) -> bool {
    key.is_multiple_of(CAREFUL)
}

/// Keys that are multiples of this number, but not of `CAREFUL`, use `run_detached`: their bodies continue
/// without their callers.
const DETACHED: u32 = 3;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The body failed after its effect.
    #[error("the body failed on purpose")]
    Failed,
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

impl CallError {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Idem(error) => error.kind().as_str(),
        }
    }
}

/// How a body ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Returns,
    Panics,
    /// The body never ends; its `timeout` stops it.
    Hangs,
    /// The body returns an error, and its key is not due for some time.
    Fails,
}

/// The circumstances of a call.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    /// How long the body takes.
    pub(crate) time: Duration,
    /// How long the caller waits for another call that is in flight.
    pub(crate) wait: Duration,
    /// How the body ends after its effect.
    end: End,
    /// The caller goes away after this time.
    pub(crate) patience: Option<Duration>,
}

impl Fate {
    /// The fate of a call whose body returns at once, and whose caller does not go away.
    pub(crate) const fn patient(wait: Duration) -> Self {
        Self { time: Duration::ZERO, wait, end: End::Returns, patience: None }
    }

    fn draw(random: &mut SmallRng) -> Self {
        let time = Duration::from_millis(random.random_range(0..60));
        let wait = Duration::from_millis(if random.random_bool(0.5) { 1_000 } else { 0 });
        let gone = Duration::from_millis(random.random_range(0..60));
        let patience = random.random_bool(0.05).then_some(gone);
        let end = match random.random_range(0..100) {
            0..3 => End::Panics,
            3..5 => End::Hangs,
            5..10 => End::Fails,
            _ => End::Returns,
        };
        Self { time, wait, end, patience }
    }
}

/// The file in the ledger with the effects.
pub(crate) const EFFECTS: &str = "effects";

/// The file with the answers.
pub(crate) const ANSWERS: &str = "answers";

/// The file with a line for each result that a worker gave up recording, and for each worker that ended after
/// SIGTERM.
pub(crate) const ENDS: &str = "ends";

/// The store and the files that the processes share, and two durations.
pub(crate) struct Shared {
    store: DynStore,
    pub(crate) ledger: Ledger,
    pub(crate) lease: Duration,
    /// How long one operation of the store may take.
    patience: Duration,
}

impl Shared {
    async fn open(folder: &Path, store: &Choice, pace: u32) -> Result<Self, idem::StoreError> {
        let store = match store {
            // With many processes on few cores, a process may wait long for the file's lock.
            Choice::Url(StoreUrl::Sqlite(file)) => {
                DynStore::new(SqliteStore::builder(file).busy_timeout(Duration::from_secs(8)).open()?)
            }
            other => other.open().await?,
        };
        let (ledger, patience) = (Ledger::new(folder.to_owned()), Duration::from_secs(10));
        Ok(Self { store, ledger, lease: LEASE * pace, patience })
    }

    /// The pause of a key after its body failed: at least the start of this range, and at most its end.
    pub(crate) fn backoff(&self) -> std::ops::Range<Duration> {
        self.lease / 4..self.lease
    }
}

/// The body under test. Its effect is a line `KEY ATTEMPT FENCE RECOVERED MILLIS` in the ledger. A failure
/// adds a second line, with `failed` in place of `RECOVERED`.
async fn effect(shared: &Shared, key: u32, amount: u64, fate: Fate) -> Result<String, CallError> {
    let context = idem::context();
    let recovered = context.as_ref().is_some_and(idem::Context::recovered);
    let (attempt, fence) =
        context.map_or((0, 0), |context| (context.attempt(), context.fence().map_or(0, idem::Fence::get)));
    let write = |how: &str| {
        let line = format!("{key} {attempt} {fence} {how} {}", unix_millis());
        // An effect without a line would look as if it had not happened.
        if shared.ledger.add(EFFECTS, &line).is_err() {
            std::process::abort();
        }
    };
    write(if recovered { "1" } else { "0" });
    tokio::time::sleep(fate.time).await;
    match fate.end {
        End::Returns => Ok(format!("{key}-{amount}-{fence}")),
        End::Panics => panic!("this body panics on purpose"),
        End::Hangs => std::future::pending().await,
        End::Fails => {
            write("failed");
            Err(CallError::Failed)
        }
    }
}

pub(crate) async fn call(shared: &Arc<Shared>, key: u32, mut fate: Fate) -> Result<String, CallError> {
    let (amount, is_careful) = (u64::from(key) * 17, is_careful(key));
    if is_careful && fate.end == End::Fails {
        // A body that fails may run again even under `in_doubt`, because a failure is not a crash.
        fate.end = End::Returns;
    }
    let operation = Operation::new(if is_careful { "soak.careful" } else { "soak.work" })
        .fingerprint(&amount)
        .lease(shared.lease)
        .timeout(shared.lease * 2)
        .wait(fate.wait)
        .store_timeout(shared.patience);
    let (store, name, inside) = (&shared.store, format!("soak/{key}"), shared.clone());
    let body = move || async move { effect(&inside, key, amount, fate).await };
    if is_careful {
        return operation.on_crash(OnCrash::InDoubt).run(store, name, body).await;
    }
    let operation = operation.retry_after(shared.backoff());
    match key.is_multiple_of(DETACHED) {
        true => operation.run_detached(store, name, body).await,
        false => operation.run(store, name, body).await,
    }
}

/// Which keys are called at what time.
#[derive(Args)]
pub(crate) struct Window {
    pub(crate) keys: u32,
    /// When the soak began, in milliseconds since the Unix epoch.
    pub(crate) begin: u64,
    /// The time from the first key to the last, in milliseconds.
    pub(crate) millis: u64,
    /// The factor of `--pace`.
    pub(crate) pace: u32,
}

impl Window {
    /// A random key among the keys of the last second.
    fn draw(&self, random: &mut SmallRng) -> u32 {
        let elapsed = unix_millis().saturating_sub(self.begin);
        let per_second = u64::from(self.keys) * 1_000 / self.millis.max(1);
        let newest = u64::from(self.keys) * elapsed / self.millis.max(1);
        let key = newest.saturating_sub(random.random_range(0..=per_second));
        u32::try_from(key).unwrap_or(u32::MAX).min(self.keys - 1)
    }
}

pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Makes calls with random keys, several at once, until the worker is killed or gets SIGTERM. Now and then
/// its store fails, loses an answer before or after it applies the operation, or is down.
pub(crate) async fn worker(
    folder: &Path,
    store: &Choice,
    name: u64,
    seed: u64,
    window: &Window,
) -> Result<(), Failure> {
    let mut asked_to_end = signal(SignalKind::terminate())?;
    // Bodies panic on purpose, so panics are not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut shared = connected(folder, store, window.pace).await?;
    // This time is shorter than some outages of the store. So some results are recorded only after their
    // calls have returned.
    shared.patience = shared.lease;
    let rates = Rates::none().fail_before(0.005).fail_after(0.01).apply_late(0.005);
    let faulty = FaultStore::seeded(shared.store, seed ^ name, rates);
    shared.store = DynStore::new(faulty.clone());
    let shared = Arc::new(shared);
    let ledger = shared.ledger.clone();
    LateRecording::new().on_unrecorded(move |_| drop(ledger.add(ENDS, "given_up"))).install();
    let lanes = (0..LANES).map(|lane| {
        let random = SmallRng::seed_from_u64(seed ^ (name << 8) ^ lane as u64);
        calls(&shared, window, random)
    });
    let outages = outages(&faulty, window.pace, SmallRng::seed_from_u64(seed ^ name));
    tokio::select! {
        ended = join_all(lanes) => return ended.into_iter().collect::<io::Result<()>>().map_err(Into::into),
        () = outages => return Ok(()),
        _ = asked_to_end.recv() => {}
    }
    // Drains, as a program should at its end. All calls are dropped by now.
    let left = idem::drain(shared.lease * 10).await;
    shared.ledger.add(ENDS, if left.is_complete() { "drained" } else { "left" })?;
    Ok(())
}

async fn calls(shared: &Arc<Shared>, window: &Window, mut random: SmallRng) -> io::Result<()> {
    loop {
        let (key, fate) = (window.draw(&mut random), Fate::draw(&mut random));
        let called = AssertUnwindSafe(observe(call(shared, key, fate))).catch_unwind();
        let ended = match fate.patience {
            Some(patience) => tokio::time::timeout(patience, called).await.ok(),
            None => Some(called.await),
        };
        let line = match ended {
            None => format!("{key} dropped -"),
            Some(Err(_)) => format!("{key} panicked -"),
            Some(Ok(called)) => match called.value {
                Ok(answer) => {
                    let how = match called.outcome {
                        Some(Outcome::Replayed { .. }) => "replayed",
                        Some(Outcome::Unrecorded { .. }) => "unrecorded",
                        _ => "executed",
                    };
                    format!("{key} {how} {answer}")
                }
                Err(error) => format!("{key} {} -", error.kind()),
            },
        };
        shared.ledger.add(ANSWERS, &line)?;
        if line.contains(" store ") {
            // While the store is down, calls fail fast. This pause keeps their answers from filling the log.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Makes the store unavailable from time to time, often for longer than a lease.
async fn outages(store: &FaultStore<DynStore>, pace: u32, mut random: SmallRng) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..4_000)) * pace).await;
        store.down(true);
        tokio::time::sleep(Duration::from_millis(random.random_range(50..1_500)) * pace).await;
        store.down(false);
    }
}

/// Connects to the store. Retries, because the soak may just have disturbed the servers of the store.
pub(crate) async fn connected(folder: &Path, store: &Choice, pace: u32) -> Result<Shared, Failure> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match Shared::open(folder, store, pace).await {
            Err(error) if error.is_transient() && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return Ok(opened?),
        }
    }
}
