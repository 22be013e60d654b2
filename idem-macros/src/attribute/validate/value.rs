//! Rules about the value of a single option.
//!
//! Owns what each may be and the words for what it is not. A rule knows no other option.

use std::str::FromStr;
use std::time::Duration;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr};

use super::super::model::{Length, MissingKey, OnCrash};
use crate::diagnostics::closest;
use crate::duration;

/// Beyond this a crash would keep its key for longer than anybody waits.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// As in the runtime.
const MAX_SCOPE_BYTES: usize = 512;

pub(super) fn length(value: &Expr) -> Result<Length, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => duration::parse(&text.value()).map(Length::Known),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let number = number.base10_digits();
            Err(format!(
                "`{number}` has no unit: write `\"{number}s\"` for seconds, or an expression of type `Duration`"
            ))
        }
        Expr::Lit(_) | Expr::Unary(_) | Expr::Tuple(_) | Expr::Closure(_) => {
            Err("this is no duration: write text such as \"30s\", or an expression of type `Duration`".into())
        }
        other => Ok(Length::Computed(other.clone())),
    }
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
    if text.len() > MAX_SCOPE_BYTES {
        return Err(format!("this scope is {} bytes long, and {MAX_SCOPE_BYTES} is the most", text.len()));
    }
    Ok(name.clone())
}

pub(super) fn on_crash(value: &Expr) -> Result<(OnCrash, Span), String> {
    let words = "write \"rerun\", to run the body again, or \"in_doubt\", to let an operator decide";
    choice(value, "on_crash", [("rerun", OnCrash::Rerun), ("in_doubt", OnCrash::InDoubt)], words)
}

pub(super) fn missing_key(value: &Expr) -> Result<(MissingKey, Span), String> {
    let words = "write \"reject\", to refuse a call without a key, or \"run\", to run its body unprotected";
    choice(value, "missing_key", [("reject", MissingKey::Reject), ("run", MissingKey::Run)], words)
}

/// One of two words.
fn choice<T: Copy>(
    value: &Expr,
    option: &str,
    choices: [(&str, T); 2],
    words: &str,
) -> Result<(T, Span), String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        return Err(format!("this is no choice for `{option}`: {words}"));
    };
    let given = text.value();
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == given) {
        return Ok((*choice, value.span()));
    }
    Err(match closest(&given, choices.map(|(name, _)| name)) {
        Some(meant) => format!("`{given}` is no choice for `{option}`: did you mean \"{meant}\"?"),
        None => format!("`{given}` is no choice for `{option}`: {words}"),
    })
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

pub(super) fn terminal(value: &Expr) -> Result<Expr, String> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(value.clone()),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Err(format!("`terminal` is a function, not text: write `terminal = {}`", text.value()))
        }
        Expr::Call(_) => {
            Err("`terminal` is a function, and idem calls it: write its path without arguments".into())
        }
        _ => Err("`terminal` is a function `fn(&E) -> bool`: write its path, or a closure".into()),
    }
}

pub(super) fn store(value: &Expr) -> Result<Expr, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Err(format!(
            "`store` is an expression, not text: write `store = {}` without quotes",
            text.value()
        )),
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Closure(_) => {
            Err("this is no store: write an expression that is one, such as `store = app.store`".into())
        }
        other => Ok(other.clone()),
    }
}
