//! The meaning of a valid attribute on a valid function: the output of `validate` and the input of `expand`.

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
    /// The path of the runtime, if it is not `::idem`.
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
    pub(crate) on_crash: Option<OnCrash>,
    pub(crate) max_attempts: Option<Expr>,
    pub(crate) fail_open: bool,
    /// Where `detach` is, if it is set.
    pub(crate) detach: Option<Span>,
    pub(crate) terminal: Option<Expr>,
    pub(crate) store: Expr,
    pub(crate) key: Vec<KeyPiece>,
    /// What a missing value in the key means, and where the option is.
    pub(crate) missing_key: Option<(MissingKey, Span)>,
    pub(crate) fingerprint: Option<Fingerprinted>,
    /// The name of the function that returns the record's name.
    pub(crate) key_function: Option<Ident>,
    /// The argument that carries the caller's transaction.
    pub(crate) transaction: Option<Carrier>,
    /// The function that is called to find out about an earlier run.
    pub(crate) recover: Option<Recover>,
}

/// The function that is called to find out about an earlier run.
#[derive(Debug)]
pub(crate) struct Recover {
    /// The function.
    pub(crate) call: Expr,
    /// `self`, if there is one: the first argument.
    pub(crate) receiver: Option<Ident>,
    /// The arguments after the recovery, passed by reference.
    pub(crate) arguments: Vec<Ident>,
}

/// The argument that carries a transaction.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// The name in the function's arguments, under which the body uses it.
    pub(crate) name: Ident,
    /// Where the option is.
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
    /// A checked constant.
    Known(Duration),
    /// An expression of type `Duration`.
    Computed(Expr),
}

/// When a key whose body failed is due again.
#[derive(Debug)]
pub(crate) enum Pace {
    /// A checked constant.
    Known(Duration),
    /// The first duration, doubled after each attempt up to the second.
    Backoff(Duration, Duration),
    /// An expression of type `Duration`, or of a range of two durations.
    Computed(Expr),
    /// A function of the error and the attempt.
    By(Expr),
}

/// What a lease that ran out without a result means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCrash {
    /// Run the body again.
    Rerun,
    /// Run nothing until an operator decides.
    InDoubt,
}

/// What a missing value in the key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The call is refused.
    Reject,
    /// The body runs without any guard.
    Run,
}
