//! The kinds of values that options have.
//!
//! Owns which expressions are of a kind, and the messages for the others. Knows nothing about the function.

use std::time::Duration;

use darling::FromMeta;
use syn::ext::IdentExt as _;
use syn::{Expr, ExprLit, Lit, LitStr, UnOp};

use crate::diagnostics::closest;
use crate::duration;
use crate::limits::MAX_SCOPE_BYTES;

/// With a longer lease, a key would stay blocked after a crash for longer than anybody waits.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Any expression; a text is a template or a place.
#[derive(Debug)]
pub(crate) struct Value(pub(crate) Expr);

/// An expression that may be a store.
#[derive(Debug)]
pub(crate) struct Store(pub(crate) Expr);

/// A fixed name.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) LitStr);

/// A function that the engine calls, by its path or as a closure.
#[derive(Debug)]
pub(crate) struct Function(pub(crate) Expr);

/// A number of attempts: a whole number above zero, or an expression.
#[derive(Debug)]
pub(crate) struct Attempts(pub(crate) Expr);

/// A length of time.
#[derive(Debug)]
pub(crate) enum Length {
    /// A checked constant.
    Known(Duration),
    /// An expression of type `Duration`.
    Computed(Expr),
}

/// How long a claim lives without a renewal.
#[derive(Debug)]
pub(crate) struct Lease(pub(crate) Length);

/// When a key whose body failed is due again.
#[derive(Debug)]
pub(crate) enum Pace {
    /// A checked constant.
    Known(Duration),
    /// The first duration, doubled after each attempt up to the second.
    Backoff(Duration, Duration),
    /// An expression of type `Duration`, or of a range of two durations.
    Computed(Expr),
    /// A function of the error and the attempt.
    By(Expr),
}

/// What a lease that ran out without a result means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCrash {
    /// Run the body again.
    Rerun,
    /// Run nothing until an operator decides.
    InDoubt,
}

/// What a missing value in the key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// The call is refused.
    Reject,
    /// The body runs without any guard.
    Run,
}

/// darling's trait for each kind, by a function that returns the kind or the message for another expression.
macro_rules! kinds {
    ($($kind:ty: $read:expr;)*) => {$(
        impl FromMeta for $kind {
            fn from_expr(value: &Expr) -> darling::Result<Self> {
                $read(value).map_err(|message: String| darling::Error::custom(message).with_span(value))
            }
        }
    )*};
}

kinds! {
    Value: |value: &Expr| Ok(Self(value.clone()));
    Store: store;
    Name: name;
    Function: function;
    Attempts: attempts;
    Length: length;
    Lease: lease;
    Pace: pace;
    OnCrash: on_crash;
    MissingKey: missing_key;
}

fn length(value: &Expr) -> Result<Length, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => duration::parse(&text.value()).map(Length::Known),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let number = number.base10_digits();
            Err(format!(
                "`{number}` has no unit: write `\"{number}s\"` for seconds, or an expression of type `Duration`"
            ))
        }
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

/// A duration, a range of two durations, or a function of the error and the attempt. A path is a function if its last
/// name is spelled like one; `validate` knows the arguments, which are spelled so too.
fn pace(value: &Expr) -> Result<Pace, String> {
    let is_function = |path: &syn::ExprPath| {
        let last = path.path.segments.last().map(|last| last.ident.unraw().to_string());
        last.is_some_and(|name| name.contains(char::is_lowercase))
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
        other => match length(other)? {
            Length::Known(known) => Ok(Pace::Known(known)),
            Length::Computed(computed) => Ok(Pace::Computed(computed)),
        },
    }
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
    Ok(Name(name.clone()))
}

fn on_crash(value: &Expr) -> Result<OnCrash, String> {
    let help = "write \"rerun\" to run the body again, or \"in_doubt\" to let an operator decide";
    choice(value, "on_crash", [("rerun", OnCrash::Rerun), ("in_doubt", OnCrash::InDoubt)], help)
}

fn missing_key(value: &Expr) -> Result<MissingKey, String> {
    let help = "write \"reject\" to refuse a call without a key, or \"run\" to run its body unprotected";
    choice(value, "missing_key", [("reject", MissingKey::Reject), ("run", MissingKey::Run)], help)
}

/// One of two texts.
fn choice<T: Copy>(value: &Expr, option: &str, choices: [(&str, T); 2], help: &str) -> Result<T, String> {
    let [(first, _), (second, _)] = choices;
    let must_be = format!("must be one of \"{first}\" and \"{second}\"");
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        return Err(format!("`{option}` {must_be}\nhelp: {help}"));
    };
    let text = text.value();
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*choice);
    }
    let help = match closest(&text, choices.map(|(name, _)| name)) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => help.to_owned(),
    };
    Err(format!("unknown value `{text}` of `{option}`: {must_be}\nhelp: {help}"))
}

fn attempts(value: &Expr) -> Result<Attempts, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => match number.base10_parse::<u32>() {
            Ok(0) => {
                Err("`max_attempts` cannot be 0: give a number above it, or leave the option out".into())
            }
            Ok(_) => Ok(Attempts(value.clone())),
            Err(_) => Err(format!("`{}` is too large for `max_attempts`", number.base10_digits())),
        },
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().parse::<u32>().is_ok() => {
            Err(format!("`max_attempts` is a number: write `{}` without quotes", text.value()))
        }
        Expr::Lit(_) | Expr::Unary(_) | Expr::Tuple(_) | Expr::Closure(_) => {
            Err("`max_attempts` is a whole number above 0".into())
        }
        other => Ok(Attempts(other.clone())),
    }
}

fn function(value: &Expr) -> Result<Function, String> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(Function(value.clone())),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            Err(format!("expected a function, found text\nhelp: write `{}` without quotes", text.value()))
        }
        Expr::Call(_) | Expr::MethodCall(_) => Err(
            "expected a function, found a call\nhelp: idem calls the function: write its path without arguments"
                .into(),
        ),
        _ => Err("expected a function\nhelp: write its path, or a closure".into()),
    }
}

fn store(value: &Expr) -> Result<Store, String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let text = text.value();
            Err(format!("`store` is an expression, not text: write `store = {text}` without quotes"))
        }
        other => Ok(Store(other.clone())),
    }
}
