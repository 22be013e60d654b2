//! Places in text: an argument, then fields and methods without arguments.
//!
//! Owns how text becomes such an expression, and the messages for other expressions. `expression` owns which expressions
//! are places and how they are borrowed. No message has a position, because stable Rust cannot point into a literal.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use syn::Expr;
use syn::ext::IdentExt;

use super::expression;
use crate::attribute::{Arguments, named_at};
use crate::source::source;

const INSTEAD: &str = "write it in the expression form, without quotes: `key = ..`";

/// A place, and how it is written.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) expr: Expr,
    pub(crate) source: String,
}

/// The place in `text`, at the location of `literal`; or why there is none.
pub(crate) fn parse(text: &str, literal: Span, arguments: &Arguments) -> Result<Place, String> {
    if text.is_empty() {
        return Err("`{}` names nothing: write an argument, such as `{order.id}`".into());
    }
    // rustc reports an unfinished literal or comment itself, in words about the whole attribute.
    let is_lexed = !text.contains(['"', '\'', '`', '\\', '/']);
    let tokens = if is_lexed { text.parse::<TokenStream>().ok() } else { None };
    let tokens = tokens.ok_or_else(|| no_place(text))?;
    let source = source(&tokens).replace("r#", "");
    let mut is_root = true;
    let tokens = tokens.into_iter().map(|token| located(token, literal, arguments, &mut is_root));
    let expr: Expr = syn::parse2(tokens.collect()).map_err(|_| unparsed(text))?;
    match foreign(&expr, text) {
        Some(message) => Err(message),
        None => Ok(Place { expr, source }),
    }
}

/// The token at the location of the literal. The first name has the hygiene of the argument. The other names have the
/// literal's own span, so that rustc says which field or method has a similar name; it hides that for code of a macro. A
/// keyword is a raw name.
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

/// The identifier `name`; a keyword that may be the name of a field becomes a raw identifier.
fn ident(name: &str, span: Span) -> Ident {
    if matches!(name, "self" | "Self" | "super" | "crate" | "_" | "await" | "true" | "false")
        || syn::parse_str::<Ident>(name).is_ok()
    {
        Ident::new(name, span)
    } else {
        Ident::new_raw(name, span)
    }
}

/// Why text that is no expression is no place.
fn unparsed(text: &str) -> String {
    match text.split_once(':') {
        Some((place, _)) if !text.contains("::") => {
            let place = place.trim();
            format!("a key has no formats, as every type has one stable rendering: write `{{{place}}}`")
        }
        _ => no_place(text),
    }
}

/// Why an expression is no place.
fn foreign(expr: &Expr, text: &str) -> Option<String> {
    Some(match expr {
        Expr::Path(path) if path.qself.is_none() && path.path.get_ident().is_some() => return None,
        Expr::Infer(_) => return None,
        Expr::Field(field) => return foreign(&field.base, text),
        Expr::MethodCall(call) if call.args.is_empty() => return foreign(&call.receiver, text),
        Expr::Paren(paren) => return foreign(&paren.expr, text),
        Expr::Path(_) => format!("`{text}` is a path, and a key is made of the arguments: name one"),
        Expr::Lit(_) => {
            format!("`{text}` is a position, and arguments are named in a key: write the argument's name")
        }
        Expr::Await(awaited) => {
            let base = source(&awaited.base);
            format!(
                "a key is made before anything is awaited: await `{base}` at the caller and pass its value"
            )
        }
        Expr::Try(_) => format!("`?` cannot be used in a key: {INSTEAD}"),
        Expr::Index(_) => format!("`{text}` indexes, which may panic: {INSTEAD}"),
        Expr::Closure(_) => format!("`{text}` is no place: closures cannot be used in a key"),
        Expr::Macro(_) => format!("`{text}` is no place: {INSTEAD}"),
        Expr::Call(call) if call.args.is_empty() => no_place(text),
        Expr::Call(_) | Expr::MethodCall(_) => format!("`{text}` calls with arguments: {INSTEAD}"),
        _ => no_place(text),
    })
}

fn no_place(text: &str) -> String {
    format!(
        "`{text}` is no place: write an argument with fields or methods without arguments, such as `order.id`"
    )
}

/// The reference to a place whose root is an argument; or the message for the root.
pub(crate) fn by_reference(place: &Place, arguments: &Arguments) -> Result<TokenStream, String> {
    let root = expression::root(&place.expr).map_or_else(|| "_".to_owned(), |root| root.unraw().to_string());
    match arguments.find(&root) {
        Some(_) => Ok(expression::by_reference(&place.expr)),
        None => Err(arguments.unknown(&root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments::of(&syn::parse_str("async fn f(&self, order: &Order, r#type: u8)").unwrap(), None)
    }

    fn tokens(text: &str) -> String {
        let place = parse(text, Span::call_site(), &arguments()).unwrap();
        by_reference(&place, &arguments()).unwrap().to_string().replace(' ', "")
    }

    #[test]
    fn a_place_is_an_argument_with_fields_and_methods() {
        assert_eq!(tokens("order"), "&order");
        assert_eq!(tokens("order.id"), "&order.id");
        assert_eq!(tokens(" order . id "), "&order.id");
        assert_eq!(tokens("order.0.1"), "&order.0.1");
        assert_eq!(tokens("order.id()"), "&(&order).id()");
        assert_eq!(tokens("order.lines().first ( ).sku"), "&(&order).lines().first().sku");
        assert_eq!(tokens("self.region"), "&self.region");
        assert_eq!(tokens("type"), "&r#type");
        assert_eq!(tokens("r#type"), "&r#type");
        assert_eq!(tokens("order.match"), "&order.r#match");
    }

    #[test]
    fn the_source_of_a_place_does_not_depend_on_its_spelling() {
        let source = |text: &str| parse(text, Span::call_site(), &arguments()).unwrap().source;
        assert_eq!(source(" order . lines().first ( ).0.1 "), "order.lines().first().0.1");
        assert_eq!(source("r#type"), source("type"));
        assert_eq!(source("order.match"), "order.match");
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
            ("f(order)", "calls with arguments"),
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
            ("order.id)", "no place"),
            ("order.(id", "no place"),
            ("order.'id", "no place"),
            ("\"order", "no place"),
            ("order /* id", "no place"),
            ("order()", "no place"),
        ] {
            let message = parse(text, Span::call_site(), &arguments()).unwrap_err();
            assert!(message.contains(words), "{text:?}: {message}");
        }
    }
}
