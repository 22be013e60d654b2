//! What the engine keeps for a whole process: the counts of its background work, the settings of late results, and the
//! renewal of leases from outside their calls.
//!
//! A program has one. A simulation gives each of its workers one of its own, so that several workers live in one program.

use std::ops::Deref;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Instant;

use crate::engine::lease::thread::Renewals;
use crate::engine::record::background::{Background, LateRecording};

tokio::task_local! {
    static OWN: Arc<State>;
}

static SHARED: LazyLock<State> = LazyLock::new(|| State::new(Instant::now()));

/// The process that a call belongs to: the program, or a worker of a simulation.
#[derive(Clone)]
pub struct Process(Option<Arc<State>>);

/// What is kept for the calls of one process.
pub struct State {
    pub(crate) background: Background,
    pub(crate) late_recording: RwLock<LateRecording>,
    pub(crate) renewals: Renewals,
    /// The instant from which the common instants of renewal are counted.
    pub(crate) epoch: Instant,
}

impl State {
    fn new(epoch: Instant) -> Self {
        Self {
            background: Background::default(),
            late_recording: RwLock::new(LateRecording::new()),
            renewals: Renewals::default(),
            epoch,
        }
    }
}

impl Process {
    /// A process of its own for a worker of a simulation. It has no thread: a task renews leases from outside their
    /// calls, by tokio's clock, which the simulation has paused.
    #[must_use]
    pub fn simulated() -> Self {
        Self(Some(Arc::new(State::new(tokio::time::Instant::now().into_std()))))
    }

    /// Runs `future` in this process. A task that it spawns is in the program's process, unless it enters this one too.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        match &self.0 {
            Some(own) => OWN.scope(own.clone(), future).await,
            None => future.await,
        }
    }

    /// The process that the current task is in.
    pub(crate) fn current() -> Self {
        Self(OWN.try_with(Arc::clone).ok())
    }

    pub(crate) const fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    /// The clock by which leases are renewed from outside their calls: the machine's, which no test pauses.
    pub(crate) fn clock(&self) -> Instant {
        if self.is_simulated() { tokio::time::Instant::now().into_std() } else { Instant::now() }
    }

    pub(crate) fn late_recording(&self) -> LateRecording {
        self.late_recording.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Process {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_deref().unwrap_or_else(|| &SHARED)
    }
}
