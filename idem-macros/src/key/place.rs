//! Places: an argument, then fields and methods without arguments.
//!
//! Owns the grammar of a place in text, and its tokens. Knows nothing about the text around it.

use std::fmt;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;

use crate::attribute::{Arguments, named_at};

/// A place such as `order.lines.0.sku()`, parsed from a literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The argument's name, without `r#`.
    pub(crate) root: String,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(u32),
    Method(String),
}

impl Place {
    /// Parses a place, or returns why `text` is not one. The message has no position.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let mut segments = text.split('.').map(str::trim);
        let root = segments.next().unwrap_or_default();
        if let Some(message) = foreign(text) {
            return Err(message);
        }
        let root = name(root).ok_or_else(|| no_place(text))?;
        let steps = segments
            .map(|segment| Step::parse(segment).ok_or_else(|| no_place(text)))
            .collect::<Result<_, _>>()?;
        Ok(Self { root: root.to_owned(), steps })
    }

    /// The place as an expression at the location of `literal`, or why its root is not an argument.
    pub(crate) fn to_tokens(&self, arguments: &Arguments, literal: Span) -> Result<TokenStream, String> {
        let argument = arguments.find(&self.root).ok_or_else(|| arguments.unknown(&self.root))?;
        let root = named_at(argument, literal);
        // A span of our own code, so that rustc suggests no edit here. An edit would replace the whole literal.
        let span = Span::mixed_site().located_at(literal);
        let first_method = self.steps.iter().position(|step| matches!(step, Step::Method(_)));
        Ok(self.steps.iter().enumerate().fold(quote_spanned!(span=> #root), |base, (at, step)| match step {
            Step::Field(field) => {
                let field = ident(field, span);
                quote_spanned!(span=> #base.#field)
            }
            Step::Index(index) => {
                let index = syn::Index { index: *index, span };
                quote_spanned!(span=> #base.#index)
            }
            // Called on a reference, so that it cannot consume what the body needs. The other methods are called on its
            // result.
            Step::Method(method) if first_method == Some(at) => {
                let method = ident(method, span);
                quote_spanned!(span=> (&#base).#method())
            }
            Step::Method(method) => {
                let method = ident(method, span);
                quote_spanned!(span=> #base.#method())
            }
        }))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        self.steps.iter().try_for_each(|step| match step {
            Step::Field(field) => write!(f, ".{field}"),
            Step::Index(index) => write!(f, ".{index}"),
            Step::Method(method) => write!(f, ".{method}()"),
        })
    }
}

impl Step {
    fn parse(segment: &str) -> Option<Self> {
        if segment.starts_with(|c: char| c.is_ascii_digit()) {
            let index: u32 = segment.parse().ok()?;
            return (index.to_string() == segment).then_some(Self::Index(index));
        }
        let Some(method) = segment.strip_suffix(')') else {
            return name(segment).map(|field| Self::Field(field.to_owned()));
        };
        let method = method.trim_end().strip_suffix('(')?;
        name(method.trim_end()).map(|method| Self::Method(method.to_owned()))
    }
}

/// `text` if it is an identifier or keyword, without `r#`.
fn name(text: &str) -> Option<&str> {
    let bare = text.strip_prefix("r#").unwrap_or(text);
    let mut chars = bare.chars();
    let first = chars.next()?;
    let begins = first == '_' || unicode_ident::is_xid_start(first);
    (begins && chars.all(unicode_ident::is_xid_continue)).then_some(bare)
}

/// The identifier `name`; a keyword becomes a raw identifier.
fn ident(name: &str, span: Span) -> Ident {
    if syn::parse_str::<Ident>(name).is_ok() || matches!(name, "self" | "Self" | "super" | "crate" | "_") {
        Ident::new(name, span)
    } else {
        Ident::new_raw(name, span)
    }
}

/// Syntax that is common elsewhere but not allowed in a key, with a message for each.
fn foreign(text: &str) -> Option<String> {
    let expression = "write it in the expression form, without quotes: `key = ..`";
    let message = if text.is_empty() {
        "`{}` names nothing: write an argument, such as `{order.id}`".to_owned()
    } else if text.starts_with(|c: char| c.is_ascii_digit()) {
        format!("`{text}` is a position, and arguments are named in a key: write the argument's name")
    } else if let Some(before) =
        text.strip_suffix(".await").or_else(|| text.split(".await").nth(1).map(|_| text))
    {
        let before = before.split(".await").next().unwrap_or(before);
        format!("a key is made before anything is awaited: await `{before}` at the caller and pass its value")
    } else if text.contains("::") {
        format!("`{text}` is a path, and a key is made of the arguments: name one")
    } else if let Some((place, _)) = text.split_once(':') {
        let place = place.trim();
        format!("a key has no formats, as every type has one stable rendering: write `{{{place}}}`")
    } else if text.contains('?') {
        format!("`?` cannot be used in a key: {expression}")
    } else if text.contains('[') {
        format!("`{text}` indexes, which may panic: {expression}")
    } else if text.contains('|') {
        format!("`{text}` is no place: closures cannot be used in a key")
    } else if text.contains('!') {
        format!("`{text}` is no place: {expression}")
    } else if has_call_arguments(text) {
        format!("`{text}` calls with arguments: {expression}")
    } else {
        return None;
    };
    Some(message)
}

fn has_call_arguments(text: &str) -> bool {
    text.split('(').skip(1).any(|after| !after.trim_start().starts_with(')'))
}

fn no_place(text: &str) -> String {
    format!(
        "`{text}` is no place: write an argument with fields or methods without arguments, such as `order.id`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> String {
        let signature = syn::parse_str("async fn f(&self, order: &Order, r#type: u8)").unwrap();
        let place = Place::parse(text).unwrap();
        let tokens = place.to_tokens(&Arguments::of(&signature), Span::call_site()).unwrap();
        tokens.to_string().replace(' ', "")
    }

    #[test]
    fn a_place_is_an_argument_with_fields_and_methods() {
        assert_eq!(tokens("order"), "order");
        assert_eq!(tokens("order.id"), "order.id");
        assert_eq!(tokens(" order . id "), "order.id");
        assert_eq!(tokens("order.0.1"), "order.0.1");
        assert_eq!(tokens("order.id()"), "(&order).id()");
        assert_eq!(tokens("order.lines().first ( ).sku"), "(&order).lines().first().sku");
        assert_eq!(tokens("self.region"), "self.region");
        assert_eq!(tokens("type"), "r#type");
        assert_eq!(tokens("r#type"), "r#type");
        assert_eq!(tokens("order.match"), "order.r#match");
    }

    #[test]
    fn what_is_no_place_is_refused_with_its_own_words() {
        for (text, words) in [
            ("", "names nothing"),
            ("0", "position"),
            ("order:?", "write `{order}`"),
            ("order : >8", "write `{order}`"),
            ("order.await", "await `order`"),
            ("order.load().await.id", "await `order.load()`"),
            ("order?", "`?`"),
            ("order[0]", "indexes"),
            ("order.get(1)", "calls with arguments"),
            ("Order::id", "path"),
            ("|o| o.id", "closures"),
            ("format!()", "no place"),
            ("order id", "no place"),
            ("order..id", "no place"),
            ("order.", "no place"),
            (".order", "no place"),
            ("order + 1", "no place"),
            ("*order", "no place"),
            ("&order", "no place"),
            ("order.00", "no place"),
            ("order.id)", "no place"),
            ("order()", "no place"),
        ] {
            let message = Place::parse(text).unwrap_err();
            assert!(message.contains(words), "{text:?}: {message}");
        }
    }
}
