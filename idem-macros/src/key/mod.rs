//! What the `key` and `fingerprint` options say, checked against the arguments.
//!
//! Owns the rules of DESIGN.md 5, "Keys"; `template`, `place` and `expression` own the grammars.

pub(crate) mod expression;
mod place;
mod template;

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::attribute::Arguments;
use place::Place;
use template::Piece;

/// A piece of a key as the builder is given it.
#[derive(Debug)]
pub(crate) enum KeyPiece {
    /// Text that stands as it is.
    Literal(LitStr),
    /// An expression that is a reference to a `KeyPart`.
    Part(TokenStream),
}

/// The key that `value` says, or every fault in it.
pub(crate) fn key(value: &Expr, arguments: &Arguments) -> Result<Vec<KeyPiece>, Vec<syn::Error>> {
    let value = expression::ungrouped(value);
    let faults = match value {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => match from_text(literal, arguments) {
            Ok(pieces) => return Ok(pieces),
            Err(messages) => messages,
        },
        _ => match expression_fault(value, arguments) {
            None => return Ok(from_expression(value)),
            Some(message) => vec![message],
        },
    };
    Err(faults.into_iter().map(|fault| syn::Error::new_spanned(value, fault)).collect())
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
    if faults.is_empty() && !pieces.iter().any(|piece| matches!(piece, Piece::Place(..))) {
        return Err(vec![format!(
            "{}; `{{{{` and `}}}}` stand for the braces themselves",
            constant(arguments)
        )]);
    }
    let pieces = pieces
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(KeyPiece::Literal(LitStr::new(&text, literal.span()))),
            Piece::Place(place, written) => match part(&place, literal.span(), arguments) {
                Ok(part) => Some(part),
                Err(fault) => {
                    faults.push(format!("in `{{{written}}}`: {fault}"));
                    None
                }
            },
        })
        .collect();
    if faults.is_empty() { Ok(pieces) } else { Err(faults) }
}

fn one_place(text: &str, span: Span, arguments: &Arguments) -> Result<Vec<KeyPiece>, String> {
    let Ok(place) = Place::parse(text) else {
        // What is close to a place, a call or an index, has better words than "constant".
        let names_argument = text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .next()
            .is_some_and(|first| arguments.find(first).is_some());
        let message = match Place::parse(text) {
            Err(message) if names_argument => message,
            _ => constant(arguments),
        };
        return Err(message);
    };
    let part = part(&place, span, arguments).map_err(|fault| {
        format!(
            "a key without `{{..}}` is one place: {fault}. For text with places in it, write {}",
            example(arguments)
        )
    })?;
    Ok(vec![part])
}

fn part(place: &Place, span: Span, arguments: &Arguments) -> Result<KeyPiece, String> {
    let place = place.to_tokens(arguments, span)?;
    let span = Span::mixed_site().located_at(span);
    Ok(KeyPiece::Part(quote::quote_spanned!(span=> &#place)))
}

/// The elements of a tuple are given to the builder one by one, so that each is judged at its own
/// place; between them stands what `KeyBuilder::separator` writes.
fn from_expression(value: &Expr) -> Vec<KeyPiece> {
    let mut pieces = Vec::new();
    for element in expression::leaves(value) {
        if !pieces.is_empty() {
            pieces.push(KeyPiece::Literal(LitStr::new("/", Span::mixed_site())));
        }
        pieces.push(KeyPiece::Part(expression::by_reference(element)));
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

/// The reference that is fingerprinted, or every fault in the option.
pub(crate) fn fingerprint(value: &Expr, arguments: &Arguments) -> Result<TokenStream, Vec<syn::Error>> {
    let places = expression::elements(value);
    let faults: Vec<syn::Error> =
        places.iter().filter_map(|place| fingerprint_fault(place, arguments)).collect();
    if places.is_empty() {
        return Err(vec![syn::Error::new(
            value.span(),
            "this fingerprint is empty: name the arguments that must not change",
        )]);
    }
    if faults.is_empty() { Ok(expression::by_reference(value)) } else { Err(faults) }
}

fn fingerprint_fault(place: &Expr, arguments: &Arguments) -> Option<syn::Error> {
    let message = match (place, expression::root(place)) {
        (Expr::Lit(_), _) => {
            let name = arguments.example();
            format!(
                "a literal is the same for every call: write a place or a tuple of places, such as `fingerprint = {name}`"
            )
        }
        (_, Some(root)) if arguments.find(&root.unraw().to_string()).is_some() => return None,
        (_, Some(root)) => arguments.unknown(&root.unraw().to_string()),
        (_, None) => {
            "a fingerprint is made of places: write an argument with fields or methods without arguments"
                .into()
        }
    };
    Some(syn::Error::new_spanned(place, message))
}
