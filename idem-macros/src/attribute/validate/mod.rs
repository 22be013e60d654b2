//! Checks the rules of the attribute, and makes the model.
//!
//! Owns the rules for which options can be combined. `item` has the rules about the function, and `recover`
//! and `transaction` have the rules about the options with these names. Every fault is reported. But if the
//! function is a test, only this fault is reported.

mod item;
mod recover;
mod transaction;

use proc_macro2::Ident;
use syn::Expr;
use syn::ext::IdentExt as _;

use super::Arguments;
use super::function::Function;
use super::kinds::{Name, OnCrash, Pace, Value};
use super::model::{Model, Scope};
use super::options::Options;
use crate::diagnostics::Faults;
use crate::key;

/// The model; `None` if a fault makes a model impossible.
pub(crate) fn validate<'f>(
    function: &'f Function,
    mut options: Options,
    faults: &mut Faults,
) -> Option<Model<'f>> {
    if item::is_test(function, faults) {
        return None;
    }
    let arguments = Arguments::of(&function.signature, options.store.as_ref().map(|Value(store)| store));
    missing(&options, &arguments, faults);
    let returns = item::check(function, faults);
    if options.detach.is_present() {
        item::require_owned(&function.signature, faults);
    }
    contradictions(&options, faults);
    pace(&mut options, &arguments);
    // All options are checked before the first `?`, so that all faults are found.
    let scope = scope(function, &mut options, faults);
    let key = options.key.take().and_then(|Value(value)| key::key(&value, &arguments, faults));
    let key_function = options.key_fn.take().and_then(|Value(value)| key_fn(&value, function, faults));
    let transaction = transaction::check(options.transaction.take(), function, &arguments, &options, faults);
    let recover = recover::check(options.recover.take(), function, faults);
    let fingerprint = options.fingerprint.take();
    let fingerprint = fingerprint.and_then(|Value(value)| key::fingerprint(&value, &arguments, faults));
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
    let message = match (options.named("key"), options.named("store")) {
        (None, None) => format!(
            "missing `key` and `store`\nhelp: write what tells one call from another and where results are kept, \
             such as `#[idempotent(key = \"{argument}/{{{argument}}}\", store = app.store)]`"
        ),
        (None, Some(_)) => format!(
            "missing `key`\nhelp: write what tells one call from another, such as `key = \"{argument}/{{{argument}}}\"`"
        ),
        (Some(_), None) => {
            "missing `store`\nhelp: write where results are kept, such as `store = app.store`".into()
        }
        (Some(_), Some(_)) => return,
    };
    faults.push_whole(message);
}

fn contradictions(options: &Options, faults: &mut Faults) {
    if let (Some(OnCrash::InDoubt), Some(place)) = (options.on_crash, options.named("fail_open")) {
        faults.push(
            place,
            "`fail_open` contradicts `on_crash = \"in_doubt\"`: one runs the body unprotected, \
             the other promises to run it at most once; keep one of them",
        );
    }
}

/// Corrects the kind of a `retry_after` that names an argument. An argument is a value, although its name is
/// spelled like a function's.
fn pace(options: &mut Options, arguments: &Arguments) {
    if let Some(Pace::By(Expr::Path(path))) = &options.retry_after
        && path.path.get_ident().is_some_and(|name| arguments.find(&name.unraw().to_string()).is_some())
    {
        options.retry_after = Some(Pace::Computed(Expr::Path(path.clone())));
    }
}

fn scope(function: &Function, options: &mut Options, faults: &mut Faults) -> Scope {
    if options.named("scope").is_none() {
        item::require_default_scope(&function.signature, faults);
    }
    match options.scope.take() {
        Some(Name(name)) => Scope::Named(name),
        None if function.signature.receiver().is_some() => Scope::OfMethod,
        None => Scope::OfFunction,
    }
}

/// The name of the function that `key_fn` makes.
fn key_fn(value: &Expr, function: &Function, faults: &mut Faults) -> Option<Ident> {
    let own = &function.signature.ident;
    let name = match value {
        Expr::Path(path) if path.qself.is_none() && path.attrs.is_empty() => path.path.get_ident(),
        _ => None,
    };
    let name = name.filter(|name| *name != own).cloned();
    if name.is_none() {
        let message =
            format!("expected the name of the function to be made, such as `key_fn = {}_key`", own.unraw());
        faults.push(value, message);
    }
    name
}
