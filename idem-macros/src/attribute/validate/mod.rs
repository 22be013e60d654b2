//! The rules of the attribute, and making the model if they are kept.
//!
//! Owns which options can be combined; `item` has the rules about the function. Every fault is reported, and none hides
//! another.

mod item;
mod recover;
mod transaction;

use proc_macro2::Ident;
use syn::Expr;
use syn::ext::IdentExt as _;

use super::Arguments;
use super::function::Function;
use super::kinds::{Name, OnCrash, Pace, Store, Value};
use super::model::{Model, Scope};
use super::options::Options;
use crate::diagnostics::{Fault, Faults};
use crate::key;

/// The model; `None` if a fault makes that impossible.
pub(crate) fn validate<'f>(
    function: &'f Function,
    mut options: Options,
    faults: &mut Faults,
) -> Option<Model<'f>> {
    if item::is_test(function, faults) {
        return None;
    }
    let arguments = Arguments::of(&function.signature, options.store.as_ref().map(|Store(store)| store));
    missing(&options, &arguments, faults);
    let returns = item::check(function, faults);
    if options.detach.is_present() {
        item::require_owned(&function.signature, faults);
    }
    contradictions(&options, faults);
    pace(&mut options, &arguments);
    // All options are checked before the first `?`, so that all faults are found.
    let scope = scope(function, &mut options, faults);
    let key = check(options.key.take(), faults, |value| key::key(value, &arguments));
    let key_function = check(options.key_fn.take(), faults, |value| key_fn(value, &function.signature.ident));
    let transaction = transaction::check(options.transaction.take(), function, &arguments, &options, faults);
    let recover = recover::check(options.recover.take(), function, transaction.is_some(), faults);
    let fingerprint = check(options.fingerprint.take(), faults, |value| key::fingerprint(value, &arguments));
    let store = options.store.take();
    Some(Model {
        function,
        returns: returns?,
        scope,
        store: store?.0,
        key: key?,
        fingerprint,
        key_function,
        transaction,
        recover,
        options,
    })
}

fn missing(options: &Options, arguments: &Arguments, faults: &mut Faults) {
    let argument = arguments.example();
    let lacks = |name: &str| !options.names.iter().any(|present| present == name);
    let message = match (lacks("key"), lacks("store")) {
        (true, true) => format!(
            "missing `key` and `store`\nhelp: write what tells one call from another and where results are kept, \
             such as `#[idempotent(key = \"{argument}/{{{argument}}}\", store = app.store)]`"
        ),
        (true, false) => format!(
            "missing `key`\nhelp: write what tells one call from another, such as `key = \"{argument}/{{{argument}}}\"`"
        ),
        (false, true) => {
            "missing `store`\nhelp: write where results are kept, such as `store = app.store`".into()
        }
        (false, false) => return,
    };
    faults.push_whole(message);
}

fn contradictions(options: &Options, faults: &mut Faults) {
    if options.on_crash.as_deref() == Some(&OnCrash::InDoubt) && options.fail_open.is_present() {
        faults.push(
            options.fail_open.span(),
            "`fail_open` contradicts `on_crash = \"in_doubt\"`: one runs the body unprotected, \
             the other promises to run it at most once; keep one of them",
        );
    }
}

/// An argument is a value, although its name is spelled like a function's.
fn pace(options: &mut Options, arguments: &Arguments) {
    if let Some(option) = &mut options.retry_after
        && let Pace::By(Expr::Path(path)) = &**option
        && path.path.get_ident().is_some_and(|name| arguments.find(&name.unraw().to_string()).is_some())
    {
        **option = Pace::Computed(Expr::Path(path.clone()));
    }
}

fn scope(function: &Function, options: &mut Options, faults: &mut Faults) -> Scope {
    if !options.names.iter().any(|name| name == "scope") {
        item::require_default_scope(&function.signature, faults);
    }
    match options.scope.take() {
        Some(Name(name)) => Scope::Named(name),
        None if function.signature.receiver().is_some() => Scope::OfMethod,
        None => Scope::OfFunction,
    }
}

/// The name of the function that `key_fn` makes.
fn key_fn(value: &Expr, function: &Ident) -> Result<Ident, Vec<Fault>> {
    let help = format!(
        "help: write the name of the function to be made, such as `key_fn = {}_key`",
        function.unraw()
    );
    let name = match value {
        Expr::Path(path) if path.qself.is_none() && path.attrs.is_empty() => path.path.get_ident(),
        _ => None,
    };
    match name {
        Some(name) if name != function => Ok(name.clone()),
        Some(name) => Err(vec![Fault::at(value, format!("`{name}` is the function itself\n{help}"))]),
        None => Err(vec![Fault::at(value, format!("expected a name\n{help}"))]),
    }
}

/// The result of `rule` for the option's value.
fn check<T>(
    option: Option<Value>,
    faults: &mut Faults,
    rule: impl FnOnce(&Expr) -> Result<T, Vec<Fault>>,
) -> Option<T> {
    let Value(value) = option?;
    rule(&value).map_err(|found| faults.extend(found)).ok()
}
