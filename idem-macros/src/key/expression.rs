//! Keys and fingerprints written as expressions.
//!
//! Owns which expressions are places, and how an expression is taken by reference.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Ident};

/// `expr` without the groups that `macro_rules!` puts around what it forwards.
pub(crate) fn ungrouped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungrouped(&group.expr),
        other => other,
    }
}

/// The argument that a place begins with, if `expr` is a place.
pub(crate) fn root(expr: &Expr) -> Option<&Ident> {
    match ungrouped(expr) {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        Expr::Field(field) => root(&field.base),
        Expr::Paren(paren) => root(&paren.expr),
        Expr::MethodCall(call) if call.args.is_empty() => root(&call.receiver),
        _ => None,
    }
}

/// The elements of a tuple, or the expression alone.
pub(crate) fn elements(expr: &Expr) -> Vec<&Expr> {
    match ungrouped(expr) {
        Expr::Tuple(tuple) => tuple.elems.iter().collect(),
        Expr::Paren(paren) => elements(&paren.expr),
        other => vec![other],
    }
}

/// A reference to `expr`; of a tuple, to a tuple of references, so that nothing is moved.
pub(crate) fn by_reference(expr: &Expr) -> TokenStream {
    let span = Span::mixed_site().located_at(expr.span());
    match ungrouped(expr) {
        Expr::Tuple(tuple) if tuple.elems.len() == 1 => by_reference(&tuple.elems[0]),
        Expr::Tuple(tuple) => {
            let elements = tuple.elems.iter().map(by_reference);
            quote_spanned!(span=> &(#(#elements),*))
        }
        Expr::Paren(paren) => by_reference(&paren.expr),
        atom if binds_tighter_than_reference(atom) => {
            let atom = atom.to_token_stream();
            quote_spanned!(span=> &#atom)
        }
        other => quote_spanned!(span=> &(#other)),
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
        assert_eq!(reference("a + b"), "&(a+b)");
        assert_eq!(reference("(a + b)"), "&(a+b)");
        assert_eq!(reference("format!(\"{a}\")"), "&format!(\"{a}\")");
    }

    #[test]
    fn the_root_of_a_place_is_its_argument() {
        let root = |expr: &str| root(&syn::parse_str(expr).unwrap()).map(ToString::to_string);
        assert_eq!(root("order.lines().0.sku").as_deref(), Some("order"));
        assert_eq!(root("self.id").as_deref(), Some("self"));
        assert_eq!(root("order.get(1)"), None);
        assert_eq!(root("f(order)"), None);
        assert_eq!(root("Order::X"), None);
    }
}
