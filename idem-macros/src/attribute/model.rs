//! What a valid attribute on a valid function means: what `validate` makes and `expand` writes.

use std::time::Duration;

use proc_macro2::{Ident, Span};
use syn::{Expr, LitStr, Path, Type};

use super::function::Function;
use crate::key::{Fingerprinted, KeyPiece};

/// One guarded function.
#[derive(Debug)]
pub(crate) struct Model<'f> {
    pub(crate) function: &'f Function,
    pub(crate) returns: &'f Type,
    /// Where the runtime is, if not at `::idem`.
    pub(crate) runtime: Option<Path>,
    pub(crate) scope: Scope,
    pub(crate) ttl: Option<Length>,
    pub(crate) lease: Option<Length>,
    pub(crate) wait: Option<Length>,
    pub(crate) timeout: Option<Length>,
    pub(crate) store_timeout: Option<Length>,
    pub(crate) retry_after: Option<Pace>,
    /// Which values are kept.
    pub(crate) record_if: Option<Expr>,
    /// What is asked of a recorded value that does not decode.
    pub(crate) upgrade: Option<Expr>,
    /// Whether a step that nothing records is an error.
    pub(crate) strict_steps: bool,
    pub(crate) on_crash: Option<OnCrash>,
    pub(crate) max_attempts: Option<Expr>,
    pub(crate) max_result_bytes: Option<Expr>,
    pub(crate) fail_open: bool,
    /// Where `detach` stands, if it does.
    pub(crate) detach: Option<Span>,
    pub(crate) terminal: Option<Expr>,
    pub(crate) store: Expr,
    pub(crate) key: Vec<KeyPiece>,
    /// What a missing value in the key means, and where that is said.
    pub(crate) missing_key: Option<(MissingKey, Span)>,
    pub(crate) fingerprint: Option<Fingerprinted>,
    /// The name of the function that gives the record's name.
    pub(crate) key_function: Option<Ident>,
    /// The argument that carries the caller's transaction.
    pub(crate) transaction: Option<Carrier>,
    /// What is asked about an earlier run.
    pub(crate) recover: Option<Recover>,
}

/// The function that is asked about an earlier run.
#[derive(Debug)]
pub(crate) struct Recover {
    /// What is called.
    pub(crate) call: Expr,
    /// `self`, where there is one: it comes first.
    pub(crate) receiver: Option<Ident>,
    /// What it is given after the recovery, by reference.
    pub(crate) arguments: Vec<Ident>,
}

/// The argument that carries a transaction.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// As the arguments have it, so that the body finds it under this name.
    pub(crate) name: Ident,
    /// Where the option names it.
    pub(crate) said: Span,
}

/// The name of the operation.
#[derive(Debug)]
pub(crate) enum Scope {
    /// Given.
    Named(LitStr),
    /// Module path and name.
    OfFunction,
    /// Module path, type of `self` and name.
    OfMethod,
}

/// A length of time.
#[derive(Debug)]
pub(crate) enum Length {
    /// Known and checked.
    Known(Duration),
    /// An expression of type `Duration`.
    Computed(Expr),
}

/// When a key whose body failed is due again.
#[derive(Debug)]
pub(crate) enum Pace {
    /// Known and checked.
    Known(Duration),
    /// From the first, doubling up to the second.
    Backoff(Duration, Duration),
    /// An expression that is one of these.
    Computed(Expr),
    /// What a function makes of the error and the attempt.
    By(Expr),
}

/// What a lease that ran out without a result means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCrash {
    /// Run the body again.
    Rerun,
    /// Run nothing until somebody has looked.
    InDoubt,
}

/// What a missing value in the key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The call is refused.
    Reject,
    /// The body runs as if nothing guarded it.
    Run,
}
