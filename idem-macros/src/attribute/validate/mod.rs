//! The rules of the attribute, and making the model if they are kept.
//!
//! Owns which options can be combined; `item` has the rules about the function, `value` those about a single value.
//! Every fault is reported, and none hides another.

mod item;
mod recover;
mod transaction;
mod value;

use proc_macro2::Span;
use syn::Expr;
use syn::spanned::Spanned as _;

use super::Arguments;
use super::function::Function;
use super::model::{Length, Model, OnCrash, Scope};
use super::parse::{Given, Options, Value, Word};
use crate::diagnostics::{Fault, Faults};
use crate::key;
use crate::runtime_path;

/// The model; `None` if a fault makes that impossible.
pub(crate) fn validate<'f>(
    function: &'f Function,
    options: Options,
    faults: &mut Faults,
) -> Option<Model<'f>> {
    let arguments = Arguments::of(&function.signature);
    missing(&options, &arguments, faults);
    let returns = item::check(function, faults);
    let detach = given(options.detach, faults);
    if detach.is_some() {
        item::require_owned(&function.signature, faults);
    }
    let fail_open = given(options.fail_open, faults);
    let on_crash = check(options.on_crash, faults, value::on_crash);
    contradictions(on_crash, fail_open, faults);

    // All options are checked before the first `?`, so that all faults are found.
    let scope = scope(function, options.scope, faults);
    let ttl = length(options.ttl, faults);
    let lease = check(options.lease, faults, value::lease);
    let wait = spanned_length(options.wait, faults);
    let timeout = spanned_length(options.timeout, faults);
    let store_timeout = length(options.store_timeout, faults);
    let retry_after =
        check(options.retry_after, faults, |given| Ok((value::pace(given, &arguments)?, given.span())));
    let record_if =
        check(options.record_if, faults, |given| value::function(given, "record_if", "fn(&T) -> bool"));
    let max_attempts =
        check(options.max_attempts, faults, |given| value::number::<u32>(given, "max_attempts"));
    let runtime = check(options.runtime, faults, runtime_path::absolute);
    let terminal =
        check(options.terminal, faults, |given| value::function(given, "terminal", "fn(&E) -> bool"));
    let store = check(options.store, faults, value::store);
    let key = check_all(options.key, faults, |given| key::key(given, &arguments));
    let key_function = check(options.key_fn, faults, |given| value::key_fn(given, &function.signature.ident));
    let missing_key = check(options.missing_key, faults, value::missing_key);
    let beside = transaction::Beside {
        fail_open: fail_open.map(|Word(span)| span),
        detach: detach.map(|Word(span)| span),
        on_crash,
        max_attempts: max_attempts.as_ref(),
        lease: lease.as_ref(),
        wait: wait.as_ref(),
        timeout: timeout.as_ref().map(|(_, span)| *span),
        retry_after: retry_after.as_ref().map(|(_, span)| *span),
        record_if: record_if.as_ref(),
    };
    let transaction = transaction::check(options.transaction, function, &arguments, &beside, faults);
    let recover = recover::check(options.recover, function, transaction.as_ref(), faults);
    let fingerprint = check_all(options.fingerprint, faults, |given| key::fingerprint(given, &arguments));

    Some(Model {
        function,
        returns: returns?,
        runtime,
        scope,
        ttl,
        lease,
        wait: wait.map(|(wait, _)| wait),
        timeout: timeout.map(|(timeout, _)| timeout),
        store_timeout,
        retry_after: retry_after.map(|(pace, _)| pace),
        record_if,
        on_crash: on_crash.map(|(on_crash, _)| on_crash),
        max_attempts,
        fail_open: fail_open.is_some(),
        detach: detach.map(|Word(span)| span),
        terminal,
        store: store?,
        key: key?,
        missing_key,
        key_function,
        fingerprint,
        transaction,
        recover,
    })
}

fn missing(options: &Options, arguments: &Arguments, faults: &mut Faults) {
    let argument = arguments.example();
    let lacks = |name: &str| !options.seen.iter().any(|seen| seen == name);
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

fn contradictions(on_crash: Option<(OnCrash, Span)>, fail_open: Option<Word>, faults: &mut Faults) {
    if let (Some((OnCrash::InDoubt, _)), Some(Word(span))) = (on_crash, fail_open) {
        faults.push(
            span,
            "`fail_open` contradicts `on_crash = \"in_doubt\"`: one runs the body unprotected, \
             the other promises to run it at most once; keep one of them",
        );
    }
}

fn scope(function: &Function, option: Given<Value>, faults: &mut Faults) -> Scope {
    if option.is_none() {
        item::require_default_scope(&function.signature, faults);
    }
    match check(option, faults, value::scope) {
        Some(name) => Scope::Named(name),
        None if function.signature.receiver().is_some() => Scope::OfMethod,
        None => Scope::OfFunction,
    }
}

fn length(option: Given<Value>, faults: &mut Faults) -> Option<Length> {
    check(option, faults, value::length)
}

fn spanned_length(option: Given<Value>, faults: &mut Faults) -> Option<(Length, Span)> {
    check(option, faults, |value| Ok((value::length(value)?, value.span())))
}

/// The option, if it is there and its syntax is right.
fn given<T>(option: Given<T>, faults: &mut Faults) -> Option<T> {
    faults.take(option?)
}

/// The result of `rule` for the option's value.
fn check<T>(
    option: Given<Value>,
    faults: &mut Faults,
    rule: impl FnOnce(&Expr) -> Result<T, String>,
) -> Option<T> {
    let Value(value) = given(option, faults)?;
    let checked = rule(&value).map_err(|message| Fault::at(&value, message));
    faults.take(checked)
}

/// As [`check`], for a rule that finds several faults with their locations.
fn check_all<T>(
    option: Given<Value>,
    faults: &mut Faults,
    rule: impl FnOnce(&Expr) -> Result<T, Vec<Fault>>,
) -> Option<T> {
    let Value(value) = given(option, faults)?;
    rule(&value).map_err(|found| faults.extend(found)).ok()
}
