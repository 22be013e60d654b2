//! The conformance kit: named checks that any [`Store`](idem_core::Store) must pass.
//!
//! Owns the checks and the report of a failure. It knows the protocol's types and the `Store` trait, and
//! nothing about a particular store. The checks of `transitions` and `histories` expect what the protocol's
//! functions return. Those functions have tests and a model check of their own. All other checks have their
//! expectations written out in their own code.
//!
//! The tests of a store can make one test for each theme, or run the checks by hand:
//!
//! ```
//! # use idem_runtime as idem;
//! use idem::MemoryStore;
//! use idem_testing::conformance::{self, Profile, Subject, Violation};
//!
//! async fn subject() -> Subject {
//!     Subject::new(MemoryStore::new(), Profile::tokio_clock())
//! }
//!
//! idem_testing::conformance_suite!(subject);
//!
//! # fn main() -> Result<(), Violation> {
//! for check in conformance::all().iter().filter(|check| check.theme() == "time") {
//!     check.run(subject)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A check that fails reports the broken rule, and shows the last requests and answers.

mod checks;
mod differential;
mod history;
mod list;
mod runner;
mod stage;
mod subject;
#[cfg(test)]
mod tests;
mod trial;
mod witness;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use history::History;
pub use list::all;
pub use subject::{Profile, Subject};
use trial::{Broken, Checked, Trial};

type Run = for<'a> fn(&'a Trial) -> Pin<Box<dyn Future<Output = Checked> + 'a>>;

/// One named check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    name: &'static str,
    theme: &'static str,
    rule: &'static str,
    run: Run,
}

/// A rule that a store breaks. `Display` and `Debug` show the rule, the finding, and the last requests and
/// answers before it.
pub struct Violation {
    name: &'static str,
    rule: &'static str,
    what: String,
    history: String,
}

/// Runs the checks of this theme, one after the other, each on a subject of its own from `factory`. The tests
/// from [`conformance_suite!`](crate::conformance_suite) call this function.
///
/// # Errors
///
/// The violations, if the store breaks rules.
///
/// # Panics
///
/// If `factory` panics, or the kit has no such theme.
pub fn run_theme<F, S>(theme: &str, factory: F) -> Result<(), Vec<Violation>>
where
    F: Fn() -> S + Clone + Send + 'static,
    S: Future<Output = Subject>,
{
    let checks: Vec<_> = all().iter().filter(|check| check.theme == theme).collect();
    assert!(!checks.is_empty(), "the kit has no theme {theme}");
    let violations: Vec<_> = checks.iter().filter_map(|check| check.run(factory.clone()).err()).collect();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

impl Check {
    /// The name, unique in the kit: a sentence about behaviour.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The theme, one word.
    #[must_use]
    pub const fn theme(&self) -> &'static str {
        self.theme
    }

    /// The rule that the store must keep.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// Runs the check on the subject from `factory`, in its own runtime and thread.
    ///
    /// # Errors
    ///
    /// The [`Violation`], if the store breaks the rule, or the check takes longer than ten minutes.
    ///
    /// # Panics
    ///
    /// If `factory` panics.
    pub fn run<F, S>(&self, factory: F) -> Result<(), Violation>
    where
        F: FnOnce() -> S + Send + 'static,
        S: Future<Output = Subject>,
    {
        let history = Arc::new(History::default());
        runner::run(*self, factory, &history).map_err(|Broken(what)| Violation {
            name: self.name,
            rule: self.rule,
            what,
            history: history.render(),
        })
    }
}

impl Violation {
    /// The name of the check that found the violation.
    #[must_use]
    pub const fn check(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the store breaks a rule: {}", self.rule)?;
        writeln!(f, "  check: {}", self.name)?;
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

/// Makes one `#[test]` for each theme. The argument is an expression for a factory: a function or closure
/// that returns a future of a [`Subject`](crate::conformance::Subject).
///
/// The expression is repeated in every test, so it must not move anything out of its environment. Each check
/// of a theme calls a clone of the same factory. See [`conformance`](crate::conformance).
#[macro_export]
macro_rules! conformance_suite {
    (@themes $factory:expr; $($theme:ident)*) => {$(
        #[::core::prelude::v1::test]
        fn $theme() -> ::core::result::Result<(), ::std::vec::Vec<$crate::conformance::Violation>> {
            $crate::conformance::run_theme(::core::stringify!($theme), $factory)
        }
    )*};
    ($factory:expr $(,)?) => {
        $crate::conformance_suite! {
            @themes $factory;
            transitions histories time fences steps purge results keys races duels listing dropped
        }
    };
}
