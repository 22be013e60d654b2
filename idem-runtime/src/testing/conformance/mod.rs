//! The conformance kit: named checks that any [`Store`](crate::Store) must pass.
//!
//! Owns the checks and what a failure says. It knows the protocol's words and a store's face, and
//! nothing of any store; expectations are written out here, not asked of the protocol's functions.
//!
//! A store's own tests make one test of each check:
//!
//! ```
//! # use idem_runtime as idem;
//! # #[cfg(test)]
//! mod conformance {
//!     use idem::MemoryStore;
//!     use idem::testing::conformance::{Profile, Subject};
//!
//!     idem::testing::conformance_suite!(|| async {
//!         Subject::new(MemoryStore::new(), Profile::tokio_clock())
//!     });
//! }
//! ```
//!
//! A check that fails says which rule is broken, and shows what was asked and answered until then.

mod checks;
mod erased;
mod history;
mod list;
mod stage;
mod subject;
mod trial;
mod witness;

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use history::History;
pub use list::all;
use subject::Clock;
pub use subject::{Profile, Subject};
use trial::{Broken, Checked, Trial};

/// How long one check may take on a slow machine and a slow store.
const LIMIT: Duration = Duration::from_secs(120);

type Run = for<'a> fn(&'a Trial) -> Pin<Box<dyn Future<Output = Checked> + 'a>>;

/// One named check.
#[derive(Clone, Copy)]
pub struct Check {
    name: &'static str,
    theme: &'static str,
    rule: &'static str,
    run: Run,
}

/// A rule that a store breaks. `Display` and `Debug` show the rule, what was found, and the history
/// that shows it.
pub struct Violation {
    check: Check,
    what: String,
    history: String,
}

/// The check with this name, made of the subject that `factory` gives. What a test made by
/// [`conformance_suite!`](crate::testing::conformance_suite) calls.
///
/// # Errors
///
/// The [`Violation`], if the store breaks the rule.
///
/// # Panics
///
/// If `factory` does.
pub fn run<F, S>(name: &str, factory: F) -> Result<(), Violation>
where
    F: FnOnce() -> S + Send + 'static,
    S: Future<Output = Subject>,
{
    let unknown = Check {
        name: "unknown",
        theme: "",
        rule: "there is a check of this name",
        run: |_| Box::pin(async { Err(Broken("there is none".into())) }),
    };
    all().iter().find(|check| check.name == name).unwrap_or(&unknown).run(factory)
}

impl Check {
    /// Its name, unique in the kit: a sentence about behaviour.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it is about, in a word.
    #[must_use]
    pub const fn theme(&self) -> &'static str {
        self.theme
    }

    /// The rule it holds the store against.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// Runs it on the subject that `factory` gives, in a runtime and a thread of its own.
    ///
    /// # Errors
    ///
    /// The [`Violation`], if the store breaks the rule, or the check is not over in two minutes.
    ///
    /// # Panics
    ///
    /// If `factory` does.
    pub fn run<F, S>(&self, factory: F) -> Result<(), Violation>
    where
        F: FnOnce() -> S + Send + 'static,
        S: Future<Output = Subject>,
    {
        let history = Arc::new(History::default());
        let check = *self;
        let (sender, receiver) = channel();
        let recorder = history.clone();
        let worker = thread::spawn(move || {
            // Nobody listens any more if the time was over.
            let _ = sender.send(check.judge(factory, &recorder));
        });
        let found = match receiver.recv_timeout(LIMIT) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => Err(Broken(format!("it is not over after {LIMIT:?}"))),
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => Err(Broken("it ended without a word".into())),
            },
        };
        found.map_err(|Broken(what)| Violation { check, what, history: history.render() })
    }

    /// Races need threads, and so a clock that runs.
    fn races(&self) -> bool {
        matches!(self.theme, "races" | "duels")
    }

    fn judge<F, S>(&self, factory: F, history: &Arc<History>) -> Checked
    where
        F: FnOnce() -> S,
        S: Future<Output = Subject>,
    {
        let runtime = self.runtime().map_err(|error| Broken(format!("no runtime: {error}")))?;
        let (found, _kept) = runtime.block_on(async {
            let mut subject = factory().await;
            if self.races() {
                subject.profile = subject.profile.with_running_clock();
            } else if subject.profile.clock == Clock::Tokio {
                tokio::time::pause();
            }
            let found = match Trial::new(&subject, history) {
                Ok(trial) => (self.run)(&trial).await,
                Err(broken) => Err(broken),
            };
            (found, std::mem::take(&mut subject.kept))
        });
        // Before what was kept for the store: its tasks may still use it.
        runtime.shutdown_timeout(Duration::from_secs(5));
        found
    }

    fn runtime(&self) -> std::io::Result<Runtime> {
        if self.races() {
            Builder::new_multi_thread().worker_threads(4).enable_all().build()
        } else {
            Builder::new_current_thread().enable_all().build()
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("name", &self.name).field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl Violation {
    /// The check that found it.
    #[must_use]
    pub const fn check(&self) -> &Check {
        &self.check
    }

    /// What was found.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the store breaks a rule: {}", self.check.rule)?;
        writeln!(f, "  check: {} ({})", self.check.name, self.check.theme)?;
        writeln!(f, "  found: {}", self.what)?;
        writeln!(f, "  what was asked and answered:")?;
        f.write_str(&self.history)
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

/// Makes one `#[test]` of each check, from an expression that gives a factory: a function or closure
/// that gives a future of a [`Subject`](crate::testing::conformance::Subject).
///
/// The expression stands in every test, so it must not move anything out of its surroundings. See
/// [`conformance`](crate::testing::conformance).
#[macro_export]
macro_rules! conformance_suite {
    ($factory:expr $(,)?) => {
        $crate::__conformance_checks! { [$crate::__conformance_tests] ($factory) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($factory:expr) $($theme:ident { $($rule:literal { $($name:ident,)* })* })*) => {$($($(
        #[::core::prelude::v1::test]
        fn $name() -> ::core::result::Result<(), $crate::testing::conformance::Violation> {
            $crate::testing::conformance::run(::core::stringify!($name), $factory)
        }
    )*)*)*};
}
