//! Rules about the value of a single option.
//!
//! Owns which values each option accepts, and the messages for the others. A rule knows no other option.

use std::str::FromStr;
use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, UnOp};

use super::super::Arguments;
use super::super::model::{Length, MissingKey, OnCrash, Pace};
use crate::diagnostics::closest;
use crate::duration;
use crate::limits::MAX_SCOPE_BYTES;

/// With a longer lease, a key would stay blocked after a crash for longer than anybody waits.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn length(value: &Expr) -> Result<Length, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => duration::parse(&text.value()).map(Length::Known),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let number = number.base10_digits();
            Err(format!(
                "`{number}` has no unit: write `\"{number}s\"` for seconds, or an expression of type `Duration`"
            ))
        }
        Expr::Paren(paren) => length(&paren.expr),
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Closure(_) | Expr::Async(_) => Err(no_duration()),
        Expr::Unary(unary) if !matches!(unary.op, UnOp::Deref(_)) => Err(no_duration()),
        other => Ok(Length::Computed(other.clone())),
    }
}

fn no_duration() -> String {
    "expected a duration such as \"30s\", or an expression of type `Duration`".into()
}

/// The name of the function that `key_fn` makes.
pub(super) fn key_fn(value: &Expr, function: &Ident) -> Result<Ident, String> {
    let help = format!(
        "help: write the name of the function to be made, such as `key_fn = {}_key`",
        function.unraw()
    );
    let name = match value {
        Expr::Path(path) if path.qself.is_none() && path.attrs.is_empty() => path.path.get_ident(),
        _ => None,
    };
    let name = name.ok_or_else(|| format!("expected a name\n{help}"))?;
    if name == function {
        return Err(format!("`{name}` is the function itself\n{help}"));
    }
    Ok(name.clone())
}

pub(super) fn lease(value: &Expr) -> Result<Length, String> {
    match length(value)? {
        Length::Known(known) if known > MAX_LEASE => Err(
            "a lease is how long a crashed owner keeps everybody waiting, and is renewed while the body lives: \
             make it seconds or minutes, at most \"24h\"; how long the result is kept is `ttl`"
                .into(),
        ),
        length => Ok(length),
    }
}

pub(super) fn scope(value: &Expr) -> Result<LitStr, String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) = value else {
        return Err(
            "a scope is a fixed name, as it must not change: write text, such as \"payments.charge\"".into(),
        );
    };
    let text = name.value();
    if text.trim().is_empty() {
        return Err("this scope is blank: give the operation a name, such as \"payments.charge\"".into());
    }
    if let Some(at) = text.find(['{', '}']) {
        let from = &text[at..];
        let braces = from.find('}').map_or(from, |end| &from[..=end]);
        return Err(format!(
            "expected a fixed name, found `{braces}`: a scope is not a template, and is the same for every call\n\
             help: what tells one call from another goes into the key: `key = \"{braces}/..\"`"
        ));
    }
    if text.len() > MAX_SCOPE_BYTES {
        return Err(format!("this scope is {} bytes long, and {MAX_SCOPE_BYTES} is the most", text.len()));
    }
    Ok(name.clone())
}

pub(super) fn on_crash(value: &Expr) -> Result<(OnCrash, Span), String> {
    let words = "write \"rerun\" to run the body again, or \"in_doubt\" to let an operator decide";
    choice(value, "on_crash", [("rerun", OnCrash::Rerun), ("in_doubt", OnCrash::InDoubt)], words)
}

pub(super) fn missing_key(value: &Expr) -> Result<(MissingKey, Span), String> {
    let words = "write \"reject\" to refuse a call without a key, or \"run\" to run its body unprotected";
    choice(value, "missing_key", [("reject", MissingKey::Reject), ("run", MissingKey::Run)], words)
}

/// One of two texts.
fn choice<T: Copy>(
    value: &Expr,
    option: &str,
    choices: [(&str, T); 2],
    words: &str,
) -> Result<(T, Span), String> {
    let [(first, _), (second, _)] = choices;
    let must_be = format!("must be one of \"{first}\" and \"{second}\"");
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        return Err(format!("`{option}` {must_be}\nhelp: {words}"));
    };
    let given = text.value();
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == given) {
        return Ok((*choice, value.span()));
    }
    let help = match closest(&given, choices.map(|(name, _)| name)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => words.to_owned(),
    };
    Err(format!("unknown value `{given}` of `{option}`: {must_be}\nhelp: {help}"))
}

/// A whole number above zero that fits a `T`, or an expression of that type.
pub(super) fn number<T: FromStr>(value: &Expr, name: &str) -> Result<Expr, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let digits = number.base10_digits();
            if digits == "0" {
                return Err(format!("`{name}` cannot be 0: give a number above it, or leave the option out"));
            }
            if digits.parse::<T>().is_err() {
                return Err(format!("`{digits}` is too large for `{name}`"));
            }
            Ok(value.clone())
        }
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().parse::<T>().is_ok() => {
            Err(format!("`{name}` is a number: write `{}` without quotes", text.value()))
        }
        Expr::Lit(_) | Expr::Unary(_) | Expr::Tuple(_) | Expr::Closure(_) => {
            Err(format!("`{name}` is a whole number above 0"))
        }
        other => Ok(other.clone()),
    }
}

/// A function that the engine calls, by its path or as a closure.
pub(super) fn function(value: &Expr, name: &str, signature: &str) -> Result<Expr, String> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(value.clone()),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Err(format!("`{name}` is a function, not text: write `{name} = {}`", text.value()))
        }
        Expr::Call(_) => {
            Err(format!("`{name}` is a function, and idem calls it: write its path without arguments"))
        }
        _ => Err(format!("`{name}` is a function `{signature}`: write its path, or a closure")),
    }
}

/// A duration, a range of two durations, or a function of the error and the attempt.
pub(super) fn pace(value: &Expr, arguments: &Arguments) -> Result<Pace, String> {
    let is_function = |path: &syn::ExprPath| {
        let is_argument =
            path.path.get_ident().is_some_and(|name| arguments.find(&name.unraw().to_string()).is_some());
        let last = path.path.segments.last().map(|last| last.ident.unraw().to_string());
        !is_argument && last.is_some_and(|name| name.contains(char::is_lowercase))
    };
    match value {
        Expr::Closure(_) => Ok(Pace::By(value.clone())),
        Expr::Path(path) if is_function(path) => Ok(Pace::By(value.clone())),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => match text.value().split_once("..") {
            None => duration::parse(&text.value()).map(Pace::Known),
            Some((shortest, longest)) => {
                let (shortest, longest) = (duration::parse(shortest)?, duration::parse(longest)?);
                if shortest >= longest {
                    return Err(
                        "expected a range that begins with the shorter duration, such as \"1s..5m\"".into()
                    );
                }
                Ok(Pace::Backoff(shortest, longest))
            }
        },
        Expr::Range(_) => Ok(Pace::Computed(value.clone())),
        Expr::Paren(paren) => pace(&paren.expr, arguments),
        other => match length(other)? {
            Length::Known(known) => Ok(Pace::Known(known)),
            Length::Computed(computed) => Ok(Pace::Computed(computed)),
        },
    }
}

pub(super) fn store(value: &Expr) -> Result<Expr, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Err(format!(
            "`store` is an expression, not text: write `store = {}` without quotes",
            text.value()
        )),
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Closure(_) => Err(format!(
            "expected a store, found {}\nhelp: write an expression that is one, such as `store = app.store`",
            found(value)
        )),
        other => Ok(other.clone()),
    }
}

/// A description of an expression that is not a store.
fn found(value: &Expr) -> String {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => format!("`{}`", quote::quote!(#lit)),
        Expr::Tuple(_) => "a tuple".into(),
        _ => "a closure".into(),
    }
}
