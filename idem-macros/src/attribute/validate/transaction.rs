//! Rules about `transaction`: which argument can carry one, and which options contradict it.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, FnArg, Pat, Type};

use super::super::Arguments;
use super::super::function::Function;
use super::super::model::{Carrier, Length, OnCrash};
use super::super::parse::{Given, Value};
use crate::diagnostics::{Fault, Faults};
use crate::limits::DEFAULT_LEASE;

/// The options that contradict a transaction.
pub(super) struct Beside<'o> {
    pub(super) fail_open: Option<Span>,
    pub(super) detach: Option<Span>,
    pub(super) on_crash: Option<(OnCrash, Span)>,
    pub(super) max_attempts: Option<&'o Expr>,
    pub(super) lease: Option<&'o Length>,
    pub(super) wait: Option<&'o (Length, Span)>,
    pub(super) timeout: Option<Span>,
    pub(super) retry_after: Option<Span>,
    pub(super) record_if: Option<&'o Expr>,
}

/// The argument that carries the transaction.
pub(super) fn check(
    option: Given<Value>,
    function: &Function,
    arguments: &Arguments,
    beside: &Beside<'_>,
    faults: &mut Faults,
) -> Option<Carrier> {
    let given = option.is_some();
    if given {
        contradictions(beside, faults);
    }
    let Value(value) = super::given(option, faults)?;
    let carrier = carrier(&value, function, arguments);
    faults.take(carrier.map_err(|message| Fault::at(&value, message)))
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
    let found = inputs.filter_map(|input| match input {
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(pattern) if pattern.ident.unraw() == text => Some((&pattern.ident, &*argument.ty)),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    let mutable = |ty: &Type| matches!(ty, Type::Reference(reference) if reference.mutability.is_some());
    match found.last() {
        Some((ident, ty)) if mutable(ty) => Ok(Carrier { name: Ident::clone(ident), said: value.span() }),
        Some(_) => Err(format!(
            "the transaction stays the caller's, who commits it: take `{text}` by `&mut`, such as \
             `{text}: &mut Transaction<'_, Postgres>`"
        )),
        None => Err(format!("`{text}` must be an argument of its own, not part of a pattern nor `self`")),
    }
}

fn contradictions(beside: &Beside<'_>, faults: &mut Faults) {
    if let Some(span) = beside.fail_open {
        faults.push(
            span,
            "`fail_open` contradicts `transaction`: one runs the body without a claim, the other commits both \
             together; leave one out",
        );
    }
    if let Some(span) = beside.detach {
        faults.push(
            span,
            "`detach` contradicts `transaction`: a detached body outlives its caller, and the transaction is the \
             caller's; leave one out",
        );
    }
    if let Some((OnCrash::InDoubt, span)) = beside.on_crash {
        faults.push(
            span,
            "`on_crash = \"in_doubt\"` contradicts `transaction`: what is not committed leaves no doubt; leave one \
             out",
        );
    }
    if let Some(attempts) = beside.max_attempts {
        faults.push(
            attempts.span(),
            "`max_attempts` contradicts `transaction`: an attempt that is rolled back leaves no trace to count; \
             leave one out",
        );
    }
    for (name, span) in [("timeout", beside.timeout), ("retry_after", beside.retry_after)] {
        if let Some(span) = span {
            faults.push(
                span,
                format!(
                    "`{name}` contradicts `transaction`: an attempt that is rolled back leaves no trace; leave one out"
                ),
            );
        }
    }
    if let Some(keeps) = beside.record_if {
        faults.push(
            keeps.span(),
            "`record_if` contradicts `transaction`: effects would be committed without a record of them; leave one \
             out",
        );
    }
    let lease = match beside.lease {
        None => Some(DEFAULT_LEASE),
        Some(Length::Known(lease)) => Some(*lease),
        Some(Length::Computed(_)) => None,
    };
    if let (Some((Length::Known(wait), span)), Some(lease)) = (beside.wait, lease)
        && *wait > lease
    {
        faults.push(
            *span,
            "`wait` is longer than the lease, and it holds the caller's transaction open: wait less, or set a longer \
             `lease`",
        );
    }
}
