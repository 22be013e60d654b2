//! Places in the text of a key: an argument, followed by fields and by methods without arguments.
//!
//! Parses text into a place, and owns the messages for text that is not a place. `expression` decides which
//! expressions are places, and writes the code that takes a place by reference. No message has a position,
//! because stable Rust cannot point into a literal.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use syn::Expr;
use syn::ext::IdentExt;

use super::{KeyPiece, expression};
use crate::attribute::{Arguments, named_at};
use crate::source::source;

/// Parses the place in `text`, with tokens at the location of `literal`. The error says why `text` is not a
/// place.
pub(crate) fn parse(text: &str, literal: Span, arguments: &Arguments) -> Result<KeyPiece, String> {
    if text.is_empty() {
        return Err("this names nothing: write an argument, such as `{order.id}`".into());
    }
    // Text with a character that may begin a literal or a comment is not parsed. If the literal or comment
    // were unfinished, rustc itself would report it, with a message about the whole attribute.
    let is_lexed = !text.contains(['"', '\'', '`', '\\', '/']);
    let tokens = if is_lexed { text.parse::<TokenStream>().ok() } else { None };
    let tokens = tokens.ok_or_else(|| no_place(text))?;
    let source = source(&tokens).replace("r#", "");
    let mut is_root = true;
    let tokens = tokens.into_iter().map(|token| located(token, literal, arguments, &mut is_root));
    let expr: Expr = syn::parse2(tokens.collect()).map_err(|_| unparsed(text))?;
    let root = match (expression::root(&expr), &expr) {
        (Some(root), _) => root.unraw().to_string(),
        (None, Expr::Infer(_)) => "_".to_owned(),
        (None, _) => return Err(no_place(text)),
    };
    match arguments.find(&root) {
        Some(_) => Ok(KeyPiece::Part { tokens: expression::by_reference(&expr), source }),
        None => Err(arguments.unknown(&root)),
    }
}

/// Moves `token` to the location of the literal. The first name gets the hygiene of the argument that it
/// names. The other names get the literal's own span, because rustc suggests a similar field or method only
/// for a name that does not come from a macro. A keyword usually becomes a raw identifier: see [`ident`].
fn located(token: TokenTree, literal: Span, arguments: &Arguments, is_root: &mut bool) -> TokenTree {
    let span = Span::mixed_site().located_at(literal);
    match token {
        TokenTree::Ident(name) => {
            let text = name.unraw().to_string();
            let argument = if std::mem::take(is_root) { arguments.find(&text) } else { None };
            argument.map_or_else(|| ident(&text, literal), |argument| named_at(argument, literal)).into()
        }
        TokenTree::Group(group) => {
            let inside = group.stream().into_iter();
            let inside = inside.map(|token| located(token, literal, arguments, is_root)).collect();
            let mut group = Group::new(group.delimiter(), inside);
            group.set_span(span);
            group.into()
        }
        mut other => {
            other.set_span(span);
            other
        }
    }
}

/// The identifier `name`. A keyword becomes a raw identifier, so that it can name a field. The exceptions are
/// the keywords that cannot be raw, and `await`, `true` and `false`, which keep their meaning.
fn ident(name: &str, span: Span) -> Ident {
    if matches!(name, "self" | "Self" | "super" | "crate" | "_" | "await" | "true" | "false")
        || syn::parse_str::<Ident>(name).is_ok()
    {
        Ident::new(name, span)
    } else {
        Ident::new_raw(name, span)
    }
}

/// The message for text that is not an expression, and so not a place.
fn unparsed(text: &str) -> String {
    match text.split_once(':') {
        Some((place, _)) if !text.contains("::") => {
            let place = place.trim();
            format!("a key has no formats, as every type has one stable rendering: write `{{{place}}}`")
        }
        _ => no_place(text),
    }
}

fn no_place(text: &str) -> String {
    format!(
        "`{text}` is not a place: write an argument with fields or methods without arguments, such as `order.id`, or any \
         expression without quotes: `key = ..`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments::of(&syn::parse_str("async fn f(&self, order: &Order, r#type: u8)").unwrap(), None)
    }

    #[test]
    fn a_place_is_an_argument_with_fields_and_methods_however_it_is_spelled() {
        for (text, tokens, source) in [
            (" order . id ", "&order.id", "order.id"),
            ("order.0.1", "&order.0.1", "order.0.1"),
            ("order.id()", "&(&order).id()", "order.id()"),
            (" order . lines().first ( ).0", "&(&order).lines().first().0", "order.lines().first().0"),
            ("self.region", "&self.region", "self.region"),
            ("type", "&r#type", "type"),
            ("r#type", "&r#type", "type"),
            ("order.match", "&order.r#match", "order.match"),
        ] {
            match parse(text, Span::call_site(), &arguments()).unwrap() {
                KeyPiece::Part { tokens: found, source: shown } => {
                    assert_eq!((&*found.to_string().replace(' ', ""), &*shown), (tokens, source), "{text}");
                }
                KeyPiece::Literal(_) => panic!("{text} is text"),
            }
        }
    }

    #[test]
    fn what_is_no_place_is_refused_with_what_to_write() {
        let message = parse("order : >8", Span::call_site(), &arguments()).unwrap_err();
        assert!(message.contains("write `{order}`"), "{message}");
        for text in [
            "0",
            "order.load().await.id",
            "order?",
            "order[0]",
            "order.get(1)",
            "f(order)",
            "Order::id",
            "order id",
            "order..id",
            "order + 1",
            "&order",
            "order.id)",
            "\"order",
            "{ order }",
        ] {
            let message = parse(text, Span::call_site(), &arguments()).unwrap_err();
            assert!(message.contains("is not a place: write an argument"), "{text:?}: {message}");
        }
    }
}
