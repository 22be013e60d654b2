//! What a store says of its server: the answer to [`Store::inspect`](crate::Store::inspect).

use std::borrow::Cow;

use crate::protocol::Timestamp;

/// What was found when a store looked at its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What the server is and which version of it; empty where it does not say.
    pub server: String,
    /// What was looked at.
    pub findings: Vec<Finding>,
    /// The clock that judges leases, where the store has one of its own.
    pub now: Option<Timestamp>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it stands.
    pub standing: Standing,
    /// What it is: a setting's name, or a word.
    pub subject: Cow<'static, str>,
    /// How it is, and where that is not well, what follows from it and what to do.
    pub text: String,
}

/// How something that was looked at stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// As it should be.
    Fine,
    /// It cannot be seen from here: it is for a person to check.
    Unknown,
    /// The guarantee is weaker for it.
    Weak,
    /// The store cannot be used like this.
    Broken,
}

impl Inspection {
    /// Adds what was found.
    pub fn find(
        &mut self,
        standing: Standing,
        subject: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
    ) {
        self.findings.push(Finding { standing, subject: subject.into(), text: text.into() });
    }
}
