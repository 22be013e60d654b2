//! Recording results in the background: its limits, and the hook for results that are given up.
//!
//! Owns the settings of a process. `late` reads them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::process::Process;
use crate::error::{CallId, StoreError};
use idem_core::protocol::{StoredResult, Verdict};

/// A result that is not recorded and will not be: the argument of the hook of [`LateRecording::on_unrecorded`].
///
/// `Debug` shows only the length of the result.
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
    /// How long the store would keep it.
    pub ttl: Duration,
    /// The last error of the store; `None` if the key was taken over, released or deleted meanwhile.
    pub error: Option<StoreError>,
}

type Hook = Arc<dyn Fn(&Unrecorded) + Send + Sync>;

/// Settings of this process for results that the store did not record in time: the engine retries in the background.
///
/// A caller gets the value of a body that succeeded, whatever the store does. But as long as the result is not
/// recorded, another caller can run the body after the lease. So the engine keeps the result in memory and retries,
/// with pauses that grow to a few seconds, for an hour: at most 1,000 results of 64 MiB together. See "When the store
/// fails after the work" in `docs/attribute.md`.
///
/// ```
/// # use idem_runtime as idem;
/// use std::time::Duration;
/// use idem::LateRecording;
///
/// LateRecording::new()
///     .on_unrecorded(|lost| {
///         // Put it where an operator finds it: a file, a queue, another database.
///         eprintln!("not recorded: {} attempt {}", lost.call, lost.attempt);
///     })
///     .install();
/// ```
#[derive(Clone, Default)]
#[must_use = "the settings are those of the process once they are `install`ed"]
pub struct LateRecording {
    hook: Option<Hook>,
}

/// How many results are kept in memory at a time; further results are given up at once.
pub(crate) const MOST_RESULTS: usize = 1_000;

/// How many bytes these results have together at most.
pub(crate) const MOST_BYTES: usize = 64 * 1024 * 1024;

/// How long recording of one result, or one release, is retried.
pub(crate) const LONGEST: Duration = Duration::from_secs(60 * 60);

impl LateRecording {
    /// The settings of a process that installs none: no hook.
    pub const fn new() -> Self {
        Self { hook: None }
    }

    /// Calls `hook` with each result that is given up: because of those limits, because of a store error that a retry
    /// does not help, because another call has the key, or because the runtime was shut down.
    ///
    /// The hook runs in a task of the runtime, or while the runtime drops its tasks. It must not block for long, so
    /// send the result to a queue or a thread. A panic of the hook is caught. The event `unrecorded` is emitted first.
    pub fn on_unrecorded(mut self, hook: impl Fn(&Unrecorded) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Makes these the settings of this process, also for results that are already waiting.
    pub fn install(self) {
        Process::current().set_late_recording(self);
    }

    pub(crate) fn tell(&self, unrecorded: impl FnOnce() -> Unrecorded) {
        if let Some(hook) = &self.hook {
            // A panic of the hook must not reach the call.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&unrecorded())));
        }
    }
}

impl fmt::Debug for LateRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateRecording").field("on_unrecorded", &self.hook.is_some()).finish()
    }
}
