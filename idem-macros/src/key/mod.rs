//! The `key` and `fingerprint` options, checked against the arguments.
//!
//! A place is a name, usually of an argument, followed by fields and by methods without arguments, such as
//! `order.id`.
//!
//! Owns the rules for which keys and fingerprints are valid. `template` owns the text around places,
//! `expression` owns the grammar of places, and `place` parses text into a place.

pub(crate) mod expression;
mod place;
mod template;

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::attribute::Arguments;
use crate::diagnostics::Faults;
use crate::source::source;
use template::Piece;

/// A piece of a key, as the generated code passes it to `KeyBuilder`.
#[derive(Debug)]
pub(crate) enum KeyPiece {
    /// Literal text.
    Literal(LitStr),
    /// An expression that is a reference to a `KeyPart`, and its source text.
    Part { tokens: TokenStream, source: String },
}

impl KeyPiece {
    /// The expression, unless the piece is literal text.
    pub(crate) fn part(&self) -> Option<&TokenStream> {
        match self {
            Self::Literal(_) => None,
            Self::Part { tokens, .. } => Some(tokens),
        }
    }
}

/// The fingerprinted value: an expression that is a reference to the value, and its source text.
#[derive(Debug)]
pub(crate) struct Fingerprinted {
    pub(crate) tokens: TokenStream,
    pub(crate) source: String,
}

/// The pieces of the key in `value`; `None` if the key has faults.
pub(crate) fn key(value: &Expr, arguments: &Arguments, faults: &mut Faults) -> Option<Vec<KeyPiece>> {
    if let Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) = value {
        let key = from_text(literal, arguments);
        return key.map_err(|messages| messages.iter().for_each(|message| faults.push(value, message))).ok();
    }
    if let Some(message) = expression_fault(value, arguments) {
        faults.push(value, message);
        return None;
    }
    let leaves = expression::leaves(value);
    let texts = leaves.iter().filter(|leaf| is_text_for_place(leaf, arguments));
    let texts: Vec<_> = texts.collect();
    for text in &texts {
        faults.push(
            text,
            "text beside other values is taken as it is\nhelp: write one template, or the place without quotes",
        );
    }
    texts.is_empty().then(|| from_leaves(&leaves))
}

/// Whether an expression is text that looks like a place or a template.
fn is_text_for_place(expr: &Expr, arguments: &Arguments) -> bool {
    expression::text(expr).is_some_and(|text| arguments.are_meant_by(&text.value()))
}

fn from_text(literal: &LitStr, arguments: &Arguments) -> Result<Vec<KeyPiece>, Vec<String>> {
    let text = literal.value();
    if text.trim().is_empty() {
        return Err(vec![format!("this key is empty: {}", instead(arguments))]);
    }
    if !text.contains(['{', '}']) {
        return one_place(&text, literal.span(), arguments).map_err(|fault| vec![fault]);
    }
    let (pieces, mut faults) = template::parse(&text);
    if faults.is_empty() && !pieces.iter().any(|piece| matches!(piece, Piece::Place(_))) {
        return Err(vec![format!(
            "{}; `{{{{` and `}}}}` stand for the braces themselves",
            constant(arguments)
        )]);
    }
    let mut key = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => key.push(KeyPiece::Literal(LitStr::new(&text, literal.span()))),
            Piece::Place(written) => match place::parse(&written, literal.span(), arguments) {
                Ok(part) => key.push(part),
                Err(fault) => faults.push(format!("in `{{{written}}}`: {fault}")),
            },
        }
    }
    if faults.is_empty() { Ok(key) } else { Err(faults) }
}

fn one_place(text: &str, span: Span, arguments: &Arguments) -> Result<Vec<KeyPiece>, String> {
    let part = place::parse(text.trim(), span, arguments).map_err(|fault| {
        format!(
            "a key without `{{..}}` is one place: {fault}. Text alone would be the same key for every call, and the \
             first result would be everybody's: for text with places in it, write {}",
            example(arguments)
        )
    })?;
    Ok(vec![part])
}

/// The elements of a tuple are passed to the builder one by one, so that rustc reports an error at the
/// element that causes it. The text between two elements is the text that `KeyBuilder::separator` writes.
fn from_leaves(leaves: &[&Expr]) -> Vec<KeyPiece> {
    let mut pieces = Vec::new();
    for &element in leaves {
        if !pieces.is_empty() {
            pieces.push(KeyPiece::Literal(LitStr::new("/", Span::mixed_site())));
        }
        let tokens = expression::by_reference(element);
        pieces.push(KeyPiece::Part { tokens, source: source(element) });
    }
    pieces
}

fn expression_fault(value: &Expr, arguments: &Arguments) -> Option<String> {
    match value {
        Expr::Lit(_) => return Some(constant(arguments)),
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            return Some(format!("this key is empty: {}", instead(arguments)));
        }
        Expr::Closure(_) | Expr::Async(_) => {
            return Some("a key is a value, not code that runs later: write the expression itself".into());
        }
        _ => {}
    }
    if arguments.are_named_in(&quote::ToTokens::to_token_stream(value)) {
        return None;
    }
    Some(match expression::root(value) {
        Some(root) => arguments.unknown(&root.unraw().to_string()),
        None => constant(arguments),
    })
}

fn constant(arguments: &Arguments) -> String {
    format!(
        "this key names no argument, so it is the same for every call and the first result would be everybody's: {}",
        instead(arguments)
    )
}

fn instead(arguments: &Arguments) -> String {
    format!("write what tells one call from another, such as {}", example(arguments))
}

fn example(arguments: &Arguments) -> String {
    let name = arguments.example();
    format!("`key = \"{name}/{{{name}}}\"`")
}

/// The fingerprinted value; `None` if it has faults.
pub(crate) fn fingerprint(value: &Expr, arguments: &Arguments, faults: &mut Faults) -> Option<Fingerprinted> {
    let parts = expression::leaves(value);
    let mut is_good = true;
    for part in &parts {
        if let Some(message) = fingerprint_fault(part, arguments) {
            faults.push(part, message);
            is_good = false;
        }
    }
    if is_good && parts.iter().all(|part| is_constant(part)) {
        let name = arguments.example();
        faults.push(
            value,
            format!(
                "this fingerprint is the same for every call\nhelp: name what must not change, such as \
                 `fingerprint = {name}`"
            ),
        );
        is_good = false;
    }
    is_good.then(|| Fingerprinted { tokens: expression::by_reference(value), source: source(value) })
}

fn fingerprint_fault(part: &Expr, arguments: &Arguments) -> Option<String> {
    match (part, expression::root(part)) {
        (Expr::Closure(_) | Expr::Async(_), _) => {
            Some("a fingerprint is a value, not code that runs later: write the expression itself".into())
        }
        (_, Some(root)) if is_known(root, arguments) => None,
        (_, Some(root)) => Some(arguments.unknown(&root.unraw().to_string())),
        (_, None) if is_text_for_place(part, arguments) => {
            Some("text in a fingerprint is taken as it is\nhelp: write the place without quotes".into())
        }
        (_, None) => None,
    }
}

/// Whether a place begins with an argument, or with a name that is spelled like a constant.
fn is_known(root: &syn::Ident, arguments: &Arguments) -> bool {
    let name = root.unraw().to_string();
    arguments.find(&name).is_some() || !name.contains(char::is_lowercase)
}

/// Whether an expression is a literal or a constant.
fn is_constant(part: &Expr) -> bool {
    match expression::ungrouped(part) {
        Expr::Lit(_) => true,
        Expr::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            !name.contains(char::is_lowercase) && name.contains(char::is_uppercase)
        }),
        Expr::Unary(unary) => is_constant(&unary.expr),
        Expr::Reference(reference) => is_constant(&reference.expr),
        _ => false,
    }
}
