//! The conformance kit: named checks that any [`Store`](idem_core::Store) must pass.
//!
//! Owns the checks and what a failure says. It knows the protocol's words and a store's face, and
//! nothing of any store; expectations are written out here, not asked of the protocol's functions.
//!
//! A store's own tests make one test of each check, or run them all by hand:
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
//! for check in conformance::all().iter().filter(|check| check.theme() == "claim") {
//!     check.run(subject)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A check that fails says which rule is broken, and shows what was asked and answered until then.

mod checks;
pub mod differential;
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
    name: String,
    rule: &'static str,
    what: String,
    history: String,
}

/// The check with this name, made of the subject that `factory` gives. What a test made by
/// [`conformance_suite!`](crate::conformance_suite) calls.
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
    /// The [`Violation`], if the store breaks the rule, or the check is not over in ten minutes.
    ///
    /// # Panics
    ///
    /// If `factory` does.
    pub fn run<F, S>(&self, factory: F) -> Result<(), Violation>
    where
        F: FnOnce() -> S + Send + 'static,
        S: Future<Output = Subject>,
    {
        let (check, history) = (*self, Arc::new(History::default()));
        let found = runner::run(check.races(), factory, &history, check.run);
        found.map_err(|Broken(what)| Violation {
            name: check.name.to_owned(),
            rule: check.rule,
            what,
            history: history.render(),
        })
    }

    /// Races need threads, and so a clock that runs.
    fn races(&self) -> bool {
        matches!(self.theme, "races" | "duels")
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("name", &self.name).field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl Violation {
    /// The name of the check that found it.
    #[must_use]
    pub fn check(&self) -> &str {
        &self.name
    }

    /// The rule that is broken.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }

    /// What was found.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
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

/// Makes one `#[test]` of each check, from an expression that gives a factory: a function or closure
/// that gives a future of a [`Subject`](crate::conformance::Subject).
///
/// The expression stands in every test, so it must not move anything out of its surroundings. See
/// [`conformance`](crate::conformance).
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
        fn $name() -> ::core::result::Result<(), $crate::conformance::Violation> {
            $crate::conformance::run(::core::stringify!($name), $factory)
        }
    )*)*)*};
}
