//! Keys and fingerprints written as expressions.
//!
//! Owns the rules for which expressions are places, such as `order.id`, and the code that takes an expression
//! by reference.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprField, ExprLit, ExprMethodCall, Ident, Lit, LitStr};

/// `expr` without parentheses, and without the groups that `macro_rules!` puts around forwarded tokens.
pub(crate) fn ungrouped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungrouped(&group.expr),
        Expr::Paren(paren) => ungrouped(&paren.expr),
        other => other,
    }
}

/// The name that the place begins with, if `expr` is a place.
pub(crate) fn root(expr: &Expr) -> Option<&Ident> {
    match ungrouped(expr) {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        Expr::Field(field) => root(&field.base),
        Expr::MethodCall(call) if call.args.is_empty() => root(&call.receiver),
        _ => None,
    }
}

/// The elements of a tuple and of nested tuples, or the expression alone.
pub(crate) fn leaves(expr: &Expr) -> Vec<&Expr> {
    match ungrouped(expr) {
        Expr::Tuple(tuple) => tuple.elems.iter().flat_map(leaves).collect(),
        other => vec![other],
    }
}

/// The text, if `expr` is text: a literal, a reference to a literal, or a literal with methods such as
/// `.to_owned()`.
pub(crate) fn text(expr: &Expr) -> Option<&LitStr> {
    match ungrouped(expr) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        Expr::Reference(reference) => text(&reference.expr),
        Expr::MethodCall(call) if call.args.is_empty() => text(&call.receiver),
        _ => None,
    }
}

/// A reference to `expr`. For a tuple, a reference to a tuple of references, so that nothing is moved.
pub(crate) fn by_reference(expr: &Expr) -> TokenStream {
    let span = Span::mixed_site().located_at(expr.span());
    match ungrouped(expr) {
        Expr::Tuple(tuple) if tuple.elems.len() == 1 => by_reference(&tuple.elems[0]),
        Expr::Tuple(tuple) => {
            let elements = tuple.elems.iter().map(by_reference);
            quote_spanned!(span=> &(#(#elements),*))
        }
        place if root(place).is_some() => {
            let place = borrowing(place);
            quote_spanned!(span=> &#place)
        }
        atom if binds_tighter_than_reference(atom) => {
            let atom = atom.to_token_stream();
            quote_spanned!(span=> &#atom)
        }
        other => quote_spanned!(span=> &(#other)),
    }
}

/// The tokens of a place. Its first method is called on a reference, so that this method cannot consume a
/// value that the body needs. Each later method is called on the result of the previous method.
fn borrowing(place: &Expr) -> TokenStream {
    let span = Span::mixed_site().located_at(place.span());
    match ungrouped(place) {
        Expr::MethodCall(call) => {
            let ExprMethodCall { receiver, dot_token, method, turbofish, paren_token, .. } = call;
            let receiver = match calls(receiver) {
                true => borrowing(receiver),
                false => quote_spanned!(span=> (&#receiver)),
            };
            let mut arguments = Group::new(Delimiter::Parenthesis, TokenStream::new());
            arguments.set_span(paren_token.span.join());
            quote_spanned!(span=> #receiver #dot_token #method #turbofish #arguments)
        }
        Expr::Field(ExprField { base, dot_token, member, .. }) => {
            let base = borrowing(base);
            quote_spanned!(span=> #base #dot_token #member)
        }
        other => other.to_token_stream(),
    }
}

/// Whether there is a method call in a place.
fn calls(place: &Expr) -> bool {
    match ungrouped(place) {
        Expr::MethodCall(_) => true,
        Expr::Field(field) => calls(&field.base),
        _ => false,
    }
}

fn binds_tighter_than_reference(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Path(_)
            | Expr::Field(_)
            | Expr::MethodCall(_)
            | Expr::Call(_)
            | Expr::Macro(_)
            | Expr::Index(_)
            | Expr::Lit(_)
            | Expr::Reference(_)
            | Expr::Block(_)
            | Expr::Array(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(expr: &str) -> String {
        by_reference(&syn::parse_str(expr).unwrap()).to_string().replace(' ', "")
    }

    #[test]
    fn nothing_in_an_expression_is_moved() {
        assert_eq!(reference("order.id"), "&order.id");
        assert_eq!(reference("(tenant, order.id)"), "&(&tenant,&order.id)");
        assert_eq!(reference("(a, (b, c))"), "&(&a,&(&b,&c))");
        assert_eq!(reference("(a,)"), "&a");
        assert_eq!(reference("order.part.id().to_owned()"), "&(&order.part).id().to_owned()");
        assert_eq!(reference("order.id().0.get()"), "&(&order).id().0.get()");
        assert_eq!(reference("((order).id()).get()"), "&(&(order)).id().get()");
        assert_eq!(reference("a + b"), "&(a+b)");
        assert_eq!(reference("(a + b)"), "&(a+b)");
        assert_eq!(reference("format!(\"{a}\")"), "&format!(\"{a}\")");
    }
}
