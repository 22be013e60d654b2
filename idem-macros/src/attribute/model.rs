//! The meaning of a valid attribute on a valid function: the output of `validate` and the input of `expand`.

use proc_macro2::{Ident, Span};
use syn::{Expr, LitStr, Path, Token, Type};

use super::function::Function;
use super::options::Options;
use crate::key::{Fingerprinted, KeyPiece};
use crate::runtime_path::RuntimePath;

#[derive(Debug)]
pub(crate) struct Model<'f> {
    pub(crate) function: &'f Function,
    pub(crate) returns: &'f Type,
    /// The options that `validate` has not moved into the fields below.
    pub(crate) options: Options,
    pub(crate) scope: Scope,
    pub(crate) store: Expr,
    pub(crate) key: Vec<KeyPiece>,
    pub(crate) fingerprint: Option<Fingerprinted>,
    /// The value of `key_fn`: the name of a function that returns the `RecordKey` of a call.
    pub(crate) key_function: Option<Ident>,
    pub(crate) transaction: Option<Carrier>,
    pub(crate) recover: Option<Recover>,
}

impl Model<'_> {
    /// The path of the runtime, if it is not `::idem`.
    pub(crate) fn runtime(&self) -> Option<&Path> {
        self.options.runtime.as_ref().map(|RuntimePath(path)| path)
    }

    pub(crate) fn detach(&self) -> Option<Span> {
        self.options.detach.is_present().then(|| self.options.detach.span())
    }
}

/// The function that the engine calls to find out what an earlier run did.
#[derive(Debug)]
pub(crate) struct Recover {
    /// The path of the function, or a closure.
    pub(crate) call: Expr,
    /// `self`, if the guarded function has it. It is passed as the first argument.
    pub(crate) receiver: Option<Ident>,
    /// The arguments that are passed after the `Recovery`, by reference.
    pub(crate) arguments: Vec<Ident>,
}

/// The argument that carries the caller's transaction.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// The name of the argument. The body uses the transaction under this name.
    pub(crate) name: Ident,
    /// The `mut` before the name, if the user wrote it. With `mut`, the body may assign another transaction
    /// to the name.
    pub(crate) mutability: Option<Token![mut]>,
    /// The location of the option's value.
    pub(crate) place: Span,
}

/// The name of the operation.
#[derive(Debug)]
pub(crate) enum Scope {
    /// The value of the option `scope`.
    Named(LitStr),
    /// Module path and name.
    OfFunction,
    /// Module path, the type `Self` and name.
    OfMethod,
}
