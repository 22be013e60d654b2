//! The kinds of values that options have.
//!
//! Owns the rules for which expressions each kind accepts, and the error messages for all other expressions.
//! Knows nothing about the function.

use std::num::NonZeroU32;
use std::time::Duration;

use darling::FromMeta;
use syn::ext::IdentExt as _;
use syn::{Expr, ExprLit, Lit, LitStr, UnOp};

use crate::duration;
use crate::key::expression::ungrouped;
use crate::limits::MAX_SCOPE_BYTES;

/// The longest lease. With a longer lease, a crash would block a key for longer than anybody waits.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Any expression. In the option `key`, a string literal is a template (`"order/{id}"`) or one place
/// (`"order.id"`).
#[derive(Debug)]
pub(crate) struct Value(pub(crate) Expr);

/// The value of `scope`: a name, written as text.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) LitStr);

/// A function that the engine calls, written as a path or as a closure.
#[derive(Debug)]
pub(crate) struct Function(pub(crate) Expr);

/// A number of attempts: a whole number above zero, or an expression.
#[derive(Debug)]
pub(crate) struct Attempts(pub(crate) Expr);

/// A length of time.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a function has few")]
pub(crate) enum Length {
    /// A checked constant.
    Known(Duration),
    /// An expression of type `Duration`.
    Computed(Expr),
}

/// How long a claim lives without a renewal.
#[derive(Debug)]
pub(crate) struct Lease(pub(crate) Length);

/// When a key is due again after its body failed.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a function has one")]
pub(crate) enum Pace {
    /// Checked constants. A single constant is the delay after every attempt. Two constants are the shortest
    /// and the longest delay of a random backoff.
    Known(Duration, Option<Duration>),
    /// An expression of type `Duration`, or of a range of two durations.
    Computed(Expr),
    /// A function of the error and the attempt.
    By(Expr),
}

/// What the next call does after a crash, that is, after an attempt that began and did not report how it
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCrash {
    /// Run the body again.
    Rerun,
    /// Run nothing until an operator decides, or `recover` finds out what happened.
    InDoubt,
}

/// What to do with a call whose key lacks a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The call is refused.
    Reject,
    /// The body runs without any guard.
    Run,
}

/// Implements darling's trait for each kind of value. The function of a kind gets an expression, and returns
/// the value or the error message.
macro_rules! kinds {
    ($($kind:ty: $read:expr;)*) => {$(
        impl FromMeta for $kind {
            fn from_expr(value: &Expr) -> darling::Result<Self> {
                $read(ungrouped(value)).map_err(|message: String| darling::Error::custom(message).with_span(value))
            }
        }
    )*};
}

kinds! {
    Value: |value: &Expr| Ok(Self(value.clone()));
    Name: name;
    Function: function;
    Attempts: attempts;
    Length: length;
    Lease: lease;
    Pace: pace;
    OnCrash: |value: &Expr| choice(value, [("rerun", Self::Rerun), ("in_doubt", Self::InDoubt)]);
    MissingKey: |value: &Expr| choice(value, [("reject", Self::Reject), ("run", Self::Run)]);
}

fn length(value: &Expr) -> Result<Length, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => duration::parse(&text.value()).map(Length::Known),
        Expr::Lit(_) | Expr::Tuple(_) | Expr::Closure(_) | Expr::Async(_) => Err(no_duration()),
        Expr::Unary(unary) if !matches!(unary.op, UnOp::Deref(_)) => Err(no_duration()),
        other => Ok(Length::Computed(other.clone())),
    }
}

fn no_duration() -> String {
    "expected a duration such as \"30s\", or an expression of type `Duration`".into()
}

fn lease(value: &Expr) -> Result<Lease, String> {
    match length(value)? {
        Length::Known(known) if known > MAX_LEASE => Err(
            "a lease is how long a crashed owner keeps everybody waiting, and is renewed while the body lives: \
             make it seconds or minutes, at most \"24h\"; how long the result is kept is `ttl`"
                .into(),
        ),
        length => Ok(Lease(length)),
    }
}

/// A duration, a range of two durations, or a function of the error and the attempt. A path counts as a
/// function if its last name has a lowercase letter. The name of an argument has a lowercase letter, too, so
/// `validate` turns a path that names an argument back into a value.
fn pace(value: &Expr) -> Result<Pace, String> {
    let is_function = |path: &syn::ExprPath| {
        let last = path.path.segments.last().map(|last| last.ident.unraw().to_string());
        last.is_some_and(|name| name.contains(char::is_lowercase))
    };
    match value {
        Expr::Closure(_) => Ok(Pace::By(value.clone())),
        Expr::Path(path) if is_function(path) => Ok(Pace::By(value.clone())),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => match text.value().split_once("..") {
            None => duration::parse(&text.value()).map(|known| Pace::Known(known, None)),
            Some((shortest, longest)) => {
                let (shortest, longest) = (duration::parse(shortest)?, duration::parse(longest)?);
                if shortest >= longest {
                    return Err(
                        "expected a range that begins with the shorter duration, such as \"1s..5m\"".into()
                    );
                }
                Ok(Pace::Known(shortest, Some(longest)))
            }
        },
        Expr::Range(_) => Ok(Pace::Computed(value.clone())),
        other => length(other).map(|_| Pace::Computed(other.clone())),
    }
}

/// The choice whose name is the text in `value`.
fn choice<T: Copy>(value: &Expr, choices: [(&str, T); 2]) -> Result<T, String> {
    let [(first, _), (second, _)] = choices;
    let is_chosen =
        |name: &str| matches!(value, Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == name);
    let choice = choices.iter().find(|(name, _)| is_chosen(name));
    choice.map(|(_, choice)| *choice).ok_or_else(|| format!("must be one of \"{first}\" and \"{second}\""))
}

fn name(value: &Expr) -> Result<Name, String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) = value else {
        return Err(
            "a scope is a fixed name, as it must not change: write text, such as \"payments.charge\"".into(),
        );
    };
    let text = name.value();
    if text.trim().is_empty() {
        return Err("this scope is blank: give the operation a name, such as \"payments.charge\"".into());
    }
    if text.contains(['{', '}']) {
        return Err(
            "a scope is a fixed name, not a template\nhelp: what tells one call from another goes into `key`"
                .into(),
        );
    }
    if text.len() > MAX_SCOPE_BYTES {
        return Err(format!("this scope is {} bytes long, and {MAX_SCOPE_BYTES} is the most", text.len()));
    }
    Ok(Name(name.clone()))
}

fn attempts(value: &Expr) -> Result<Attempts, String> {
    let is_number = match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse::<NonZeroU32>().is_ok(),
        Expr::Lit(_) | Expr::Unary(_) | Expr::Tuple(_) | Expr::Closure(_) => false,
        _ => true,
    };
    let message = "expected a whole number above 0, such as `max_attempts = 5`";
    if is_number { Ok(Attempts(value.clone())) } else { Err(message.into()) }
}

fn function(value: &Expr) -> Result<Function, String> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(Function(value.clone())),
        _ => {
            Err("expected a function\nhelp: write its path without quotes and arguments, or a closure".into())
        }
    }
}
