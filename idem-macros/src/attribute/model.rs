//! What a valid attribute on a valid function means: what `validate` makes and `expand` writes.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Expr, LitStr, Path, Type};

use super::function::Function;
use crate::key::KeyPiece;

/// One guarded function.
#[derive(Debug)]
pub(crate) struct Model<'f> {
    pub(crate) function: &'f Function,
    pub(crate) returns: &'f Type,
    /// Where the runtime is, if not at `::idem`.
    pub(crate) runtime: Option<Path>,
    pub(crate) scope: Scope<'f>,
    pub(crate) ttl: Option<Length>,
    pub(crate) lease: Option<Length>,
    pub(crate) wait: Option<Length>,
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
    pub(crate) fingerprint: Option<TokenStream>,
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
pub(crate) enum Scope<'f> {
    /// Given.
    Named(LitStr),
    /// Made of where the function stands, and of the types that make it several.
    Site {
        /// Whether there is a `Self` to name.
        method: bool,
        /// Its own type parameters.
        types: Vec<&'f Ident>,
    },
}

/// A length of time.
#[derive(Debug)]
pub(crate) enum Length {
    /// Known and checked.
    Known(Duration),
    /// An expression of type `Duration`.
    Computed(Expr),
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
