//! How results are recorded behind their callers: the bounds of it, and what is told of a result that never is.
//!
//! Owns the settings of this process. `late` goes by them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::error::{CallId, StoreError};
use idem_core::protocol::{StoredResult, Verdict};

/// A result that is not recorded, and will not be: what the hook of [`LateRecording::on_unrecorded`] gets.
///
/// `Debug` shows how long the result is, and nothing of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unrecorded {
    /// Which call: the scope of the operation, and the digest of its key.
    pub call: CallId,
    /// Which attempt made it.
    pub attempt: u32,
    /// Whether it is a value or a terminal error.
    pub verdict: Verdict,
    /// The result as it would be in the store: JSON, or a response of the HTTP layer. Private data.
    pub result: StoredResult,
    /// How long it would be kept.
    pub ttl: Duration,
    /// The last error of the store; `None` where the key was given to another, released or deleted meanwhile.
    pub error: Option<StoreError>,
}

type Hook = Arc<dyn Fn(&Unrecorded) + Send + Sync>;

/// How this process goes on recording results that their store did not take in time, behind their callers.
///
/// A body that succeeded gives its value to its caller, whatever the store does; until the result is recorded, the
/// key is free once its lease is over. So the engine keeps the result in memory and offers it again, with pauses that
/// grow to some seconds, within these bounds. See `docs/late-recording.md`.
///
/// ```
/// # use idem_runtime as idem;
/// use std::time::Duration;
/// use idem::LateRecording;
///
/// LateRecording::new()
///     .most_results(10_000)
///     .most_bytes(256 * 1024 * 1024)
///     .longest(Duration::from_secs(4 * 60 * 60))
///     .on_unrecorded(|lost| {
///         // Put it where an operator finds it: a file, a queue, another database.
///         eprintln!("not recorded: {} attempt {}", lost.call, lost.attempt);
///     })
///     .install();
/// ```
#[derive(Clone)]
#[must_use = "the settings are those of the process once they are `install`ed"]
pub struct LateRecording {
    pub(super) most_results: usize,
    pub(super) most_bytes: usize,
    pub(super) longest: Duration,
    hook: Option<Hook>,
}

const DEFAULT: LateRecording = LateRecording {
    most_results: 1_000,
    most_bytes: 64 * 1024 * 1024,
    longest: Duration::from_secs(60 * 60),
    hook: None,
};

static INSTALLED: RwLock<LateRecording> = RwLock::new(DEFAULT);

impl Default for LateRecording {
    fn default() -> Self {
        DEFAULT
    }
}

impl LateRecording {
    /// The settings of a process that installs none: 1,000 results, 64 MiB, one hour, no hook.
    pub const fn new() -> Self {
        DEFAULT
    }

    /// The largest number of results that are kept in memory at a time; further ones are given up at once.
    pub const fn most_results(mut self, results: usize) -> Self {
        self.most_results = results;
        self
    }

    /// The largest number of bytes of such results.
    pub const fn most_bytes(mut self, bytes: usize) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// How long one result is offered to its store, unless the operation's `ttl` is shorter.
    pub const fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Calls `hook` with each result that is given up: by these bounds, by an error of the store that asking again
    /// does not mend, because the key is another's by now, or because the runtime was shut down.
    ///
    /// It runs in a task of the runtime, or where the runtime drops its tasks: it must not block for long, so hand the
    /// result to a queue or a thread. A panic in it is caught. The event `unrecorded` is emitted first.
    pub fn on_unrecorded(mut self, hook: impl Fn(&Unrecorded) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Makes these the settings of this process, for results that wait and for later ones.
    pub fn install(self) {
        *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = self;
    }

    /// Those of this process.
    pub(super) fn installed() -> Self {
        INSTALLED.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn tell(&self, unrecorded: impl FnOnce() -> Unrecorded) {
        if let Some(hook) = &self.hook {
            // A panic of the program's own code here must not reach the call.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&unrecorded())));
        }
    }
}

impl fmt::Debug for LateRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateRecording")
            .field("most_results", &self.most_results)
            .field("most_bytes", &self.most_bytes)
            .field("longest", &self.longest)
            .field("on_unrecorded", &self.hook.is_some())
            .finish()
    }
}
