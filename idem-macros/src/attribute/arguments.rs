//! The names that the arguments of a function bind. The attribute of the function may use these names.
//!
//! Finds these names, and owns the text in which messages list them. Knows nothing about options.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, Signature};

use super::function::is_mutable;
use crate::diagnostics::{closest, list};
use crate::key::expression::root;

/// The names bound by the arguments of one function.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    function: String,
    names: Vec<Ident>,
    has_unnamed: bool,
    /// The last name that may distinguish calls: not `self`, the store, or an argument taken by `&mut`.
    example: Option<String>,
}

impl Arguments {
    /// The names that `signature` binds, in order, including `self`. `store` is the value of the option
    /// `store`.
    pub(crate) fn of(signature: &Signature, store: Option<&Expr>) -> Self {
        let mut arguments = Self { function: signature.ident.unraw().to_string(), ..Self::default() };
        let store = store.and_then(root).map(|root| root.unraw().to_string());
        for input in &signature.inputs {
            let Self { names, has_unnamed, .. } = Self::of_input(input);
            let is_value = matches!(input, FnArg::Typed(typed) if !is_mutable(&typed.ty));
            let values = names.iter().map(|name| name.unraw().to_string());
            let mut values = values.filter(|name| is_value && Some(name) != store.as_ref());
            arguments.example = values.next_back().or(arguments.example);
            arguments.names.extend(names);
            arguments.has_unnamed |= has_unnamed;
        }
        arguments
    }

    /// The names that one argument binds.
    pub(crate) fn of_input(input: &FnArg) -> Self {
        let mut arguments = Self::default();
        match input {
            FnArg::Receiver(receiver) => arguments.names.push(Ident::new("self", receiver.self_token.span)),
            FnArg::Typed(typed) => arguments.visit_pat(&typed.pat),
        }
        arguments
    }

    /// The argument with this name. `name` has no `r#`, even if the argument has one.
    pub(crate) fn find(&self, name: &str) -> Option<&Ident> {
        self.names.iter().find(|argument| argument.unraw() == name)
    }

    /// An argument for examples in messages: the last suitable argument, because the first one is often the
    /// application's state.
    pub(crate) fn example(&self) -> &str {
        self.example.as_deref().unwrap_or("order")
    }

    /// The message for `name`, which is not one of the arguments: says why `name` cannot be used, and which
    /// names can.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let function = &self.function;
        if self.names.is_empty() && !self.has_unnamed {
            return format!(
                "`{function}` has no arguments, so there is no `{name}`, and nothing to make a key of"
            );
        }
        if name == "_" || self.names.is_empty() {
            return format!(
                "an argument bound to `_` cannot be used: give it a name in the arguments of `{function}`"
            );
        }
        if name == "self" {
            return format!("`{function}` has no `self`; its arguments are {}", self.listed());
        }
        let names: Vec<String> = self.names.iter().map(|name| name.unraw().to_string()).collect();
        match closest(name, names.iter().map(String::as_str)) {
            Some(meant) => format!(
                "`{function}` has no argument `{name}`: did you mean `{meant}`? Its arguments are {}",
                self.listed()
            ),
            None => format!("`{function}` has no argument `{name}`; its arguments are {}", self.listed()),
        }
    }

    /// The names as a list in a sentence.
    pub(crate) fn listed(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| name.unraw().to_string()).collect();
        list(names.iter().map(String::as_str))
    }

    /// The names that occur in `tokens`, and the names that begin with `_`.
    pub(crate) fn held_for<'a>(&'a self, tokens: &'a TokenStream) -> impl Iterator<Item = &'a Ident> {
        self.names.iter().filter(|name| {
            let alone = Self { names: vec![Ident::clone(name)], ..Self::default() };
            name.unraw().to_string().starts_with('_') || alone.are_named_in(tokens)
        })
    }

    /// Whether `tokens` name an argument anywhere, even in braces in a string of a macro call, such as
    /// `format!("{order}")`. A string outside macro calls does not count. A field, a method or a path segment
    /// with an argument's name does not count either.
    pub(crate) fn are_named_in(&self, tokens: &TokenStream) -> bool {
        self.are_in(tokens, false)
    }

    fn are_in(&self, tokens: &TokenStream, in_macro: bool) -> bool {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let sign = |at: Option<usize>, sign: char| {
            let token = at.and_then(|at| tokens.get(at));
            matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
        };
        let is_root = |at: usize| {
            let (before, further) = (at.checked_sub(1), at.checked_sub(2));
            let is_member = sign(before, '.') && !sign(further, '.');
            let is_segment = sign(before, ':') && sign(further, ':');
            let is_label = sign(Some(at + 1), ':') || (sign(Some(at + 1), '=') && !sign(Some(at + 2), '='));
            !(is_member || is_segment || is_label)
        };
        tokens.iter().enumerate().any(|(at, token)| match token {
            TokenTree::Ident(ident) => is_root(at) && self.find(&ident.unraw().to_string()).is_some(),
            TokenTree::Group(group) => {
                let is_macro = sign(at.checked_sub(1), '!')
                    && matches!(tokens.get(at.wrapping_sub(2)), Some(TokenTree::Ident(_)));
                self.are_in(&group.stream(), in_macro || is_macro)
            }
            TokenTree::Literal(literal) => in_macro && self.are_in_braces(&literal.to_string()),
            TokenTree::Punct(_) => false,
        })
    }

    /// Whether `text` looks like a key template with one of these arguments (`order/{id}`), or like a field
    /// of one of these arguments (`order.id`).
    pub(crate) fn are_meant_by(&self, text: &str) -> bool {
        let root = text.split_once('.').map(|(root, _)| root.trim());
        root.is_some_and(|root| self.find(root).is_some()) || self.are_in_braces(text)
    }

    fn are_in_braces(&self, text: &str) -> bool {
        text.replace("{{", "").split('{').skip(1).any(|after| {
            let end = after.find(['.', ':', '}']).unwrap_or(after.len());
            self.find(after[..end].trim()).is_some()
        })
    }
}

impl<'ast> Visit<'ast> for Arguments {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.names.push(pattern.ident.clone());
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_pat_wild(&mut self, _: &'ast syn::PatWild) {
        self.has_unnamed = true;
    }

    // Constants in array lengths and range patterns bind nothing.
    fn visit_expr(&mut self, _: &'ast syn::Expr) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

/// The identifier for a name that was parsed out of a literal. Its location is the literal, and its hygiene
/// is that of the argument, so that the identifier resolves even if the argument came from another macro.
pub(crate) fn named_at(argument: &Ident, literal: Span) -> Ident {
    let mut named = argument.clone();
    named.set_span(argument.span().located_at(literal));
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn arguments(signature: &str) -> Arguments {
        Arguments::of(&syn::parse_str(signature).unwrap(), None)
    }

    #[test]
    fn every_binding_of_a_pattern_is_a_name() {
        let arguments = arguments(
            "async fn f(&self, a: u8, (b, [c, ..]): B, Json(mut d): D, E { e, f: g, .. }: E, r#type: u8, _: u8)",
        );
        assert_eq!(arguments.listed(), "`self`, `a`, `b`, `c`, `d`, `e`, `g` and `type`");
        assert!(arguments.find("type").is_some());
        assert!(arguments.find("f").is_none());
        assert_eq!(arguments.example(), "type");
    }

    #[test]
    fn an_argument_is_seen_wherever_an_expression_names_it() {
        let arguments = arguments("async fn f(order: &Order)");
        assert!(arguments.are_named_in(&quote!(hash(&[order.id]))));
        assert!(arguments.are_named_in(&quote!(format!("{order}"))));
        assert!(arguments.are_named_in(&quote!(format!("{order:?}"))));
        assert!(arguments.are_named_in(&quote!(Key { order })));
        assert!(arguments.are_named_in(&quote!(0..order)));
        assert!(!arguments.are_named_in(&quote!(format!("order {}", other))));
        assert!(!arguments.are_named_in(&quote!(format!("{{order}}"))));
        assert!(!arguments.are_named_in(&quote!(String::from("{order}"))));
        for constant in [quote!(CONFIG.order), quote!(CONFIG.order()), quote!(order::ID), quote!(Key::order)]
        {
            assert!(!arguments.are_named_in(&constant), "{constant}");
        }
        assert!(!arguments.are_named_in(&quote!(Key { order: 1 })));
        assert!(!arguments.are_named_in(&quote!(format!("{x}", order = 1))));
    }
}
