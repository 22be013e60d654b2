//! What a store reports about its server: the answer to [`Store::inspect`](crate::Store::inspect).

use std::borrow::Cow;

use crate::protocol::{Timestamp, setters};

/// What a store found out about its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The server's product and version; empty if unknown.
    pub server: String,
    /// The checks.
    pub findings: Vec<Finding>,
    /// The time by the clock that judges leases; `None` if the store did not report it.
    pub now: Option<Timestamp>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its outcome.
    pub standing: Standing,
    /// What was checked: the name of a setting, or another short name.
    pub subject: Cow<'static, str>,
    /// What was found. For a problem, also its consequence and what to do.
    pub text: String,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Standing {
    /// As it should be.
    Fine,
    /// The store cannot check this subject, so a person must check it.
    Unknown,
    /// What was found weakens the guarantee.
    Weak,
    /// The store cannot be used like this.
    Broken,
}

setters! {
    Inspection {
        with_now now: Option<Timestamp>,
    }
}

impl Inspection {
    /// An inspection of this server, without checks yet.
    #[must_use]
    pub fn of(server: impl Into<String>) -> Self {
        Self { server: server.into(), ..Self::default() }
    }

    /// Adds a check.
    pub fn find(
        &mut self,
        standing: Standing,
        subject: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
    ) {
        self.findings.push(Finding { standing, subject: subject.into(), text: text.into() });
    }
}
