//! Rules about `transaction`: which argument can carry a transaction, and which options contradict it.

use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, FnArg, Pat};

use super::super::Arguments;
use super::super::function::{Function, is_mutable};
use super::super::kinds::{Lease, Length, OnCrash, Value};
use super::super::model::Carrier;
use super::super::options::Options;
use crate::diagnostics::Faults;
use crate::limits::DEFAULT_LEASE;

/// Checks the option `transaction`, and returns the argument that carries the transaction.
pub(super) fn check(
    option: Option<Value>,
    function: &Function,
    arguments: &Arguments,
    options: &Options,
    faults: &mut Faults,
) -> Option<Carrier> {
    let Value(value) = option?;
    contradictions(options, faults);
    long_wait(options, faults);
    carrier(&value, function, arguments).map_err(|message| faults.push(&value, message)).ok()
}

fn carrier(value: &Expr, function: &Function, arguments: &Arguments) -> Result<Carrier, String> {
    let name = match value {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    };
    let name = name.ok_or(
        "`transaction` names the argument that carries the caller's transaction: write its name alone, \
         such as `transaction = tx`",
    )?;
    let text = name.unraw().to_string();
    arguments.find(&text).ok_or_else(|| arguments.unknown(&text))?;
    let inputs = function.signature.inputs.iter();
    let mut named = inputs.filter_map(|input| match input {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(pattern) if pattern.ident.unraw() == text => Some((pattern, &*argument.ty)),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    match named.next_back() {
        Some((pattern, ty)) if is_mutable(ty) => {
            let (name, mutability) = (pattern.ident.clone(), pattern.mutability);
            Ok(Carrier { name, mutability, place: value.span() })
        }
        Some(_) => Err(format!(
            "the transaction stays the caller's, who commits it: take `{text}` by `&mut`, such as \
             `{text}: &mut Transaction<'_, Postgres>`"
        )),
        None => Err(format!("`{text}` must be an argument of its own, not part of a pattern nor `self`")),
    }
}

/// Reports each option that contradicts a transaction, with the reason.
fn contradictions(options: &Options, faults: &mut Faults) {
    let rolled_back = "an attempt that is rolled back leaves no trace";
    for (name, reason) in [
        ("fail_open", "one runs the body without a claim, the other commits both together"),
        ("detach", "a detached body outlives its caller, and the transaction is the caller's"),
        ("on_crash", "what is not committed leaves no doubt"),
        ("recover", "what is not committed leaves nothing to recover"),
        ("max_attempts", rolled_back),
        ("timeout", rolled_back),
        ("store_timeout", "the statements run on the caller's connection, whose own timeout counts"),
        ("retry_after", rolled_back),
        ("record_if", "effects would be committed without a record of them"),
    ] {
        let in_doubt = name != "on_crash" || options.on_crash == Some(OnCrash::InDoubt);
        if let Some(place) = options.named(name).filter(|_| in_doubt) {
            faults.push(place, format!("`{name}` contradicts `transaction`: {reason}; leave one out"));
        }
    }
}

fn long_wait(options: &Options, faults: &mut Faults) {
    let lease = match &options.lease {
        None => DEFAULT_LEASE,
        Some(Lease(Length::Known(lease))) => *lease,
        Some(Lease(Length::Computed(_))) => return,
    };
    if let (Some(Length::Known(wait)), Some(place)) = (&options.wait, options.named("wait"))
        && *wait > lease
    {
        faults.push(
            place,
            "`wait` is longer than the lease, and it holds the caller's transaction open: wait less, or set a longer \
             `lease`",
        );
    }
}
