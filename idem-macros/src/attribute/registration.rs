//! The registration of a guarded function in the catalogue, the list of all such functions in the program. It
//! consists of constants, made from the source alone. The linker gathers the constants of all functions.
//!
//! Owns the choice of the registered facts. The runtime's registry reads each fact by its name. A call of the
//! function does not run the registration.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::{FnArg, LitStr};

use super::Arguments;
use super::kinds::{Lease, Length, OnCrash};
use super::model::{Model, Scope};
use crate::key::KeyPiece;
use crate::source::source;

/// The registration of a function, as a statement in its body.
pub(super) fn expand(model: &Model<'_>, runtime: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let name = LitStr::new(&model.function.signature.ident.unraw().to_string(), span);
    let kind = if model.function.signature.receiver().is_some() { "method" } else { "function" };
    let kind = syn::Ident::new(kind, span);
    let facts = facts(model).into_iter().map(|(name, fact)| {
        let fact = LitStr::new(&fact, span);
        quote_spanned!(span=> (#name, #fact))
    });
    // The block keeps these items apart from the user's, because items have no hygiene. The type name of
    // `Here` tells the runtime which item contains the function. A macro cannot see that item.
    quote_spanned! {span=> {
        struct Here;
        #runtime::register!(#runtime::Registered::#kind(
            ::core::module_path!(), #name, ::core::any::type_name::<Here>, &[#(#facts),*],
        ));
    }}
}

fn facts(model: &Model<'_>) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Scope::Named(scope) = &model.scope {
        facts.push(("scope", scope.value()));
    }
    facts.push(("key", key(&model.key)));
    facts.extend(arguments(model).map(|argument| ("argument", argument)));
    facts.extend(model.fingerprint.iter().map(|fingerprint| ("fingerprint", fingerprint.source.clone())));
    facts.extend(model.options.ttl.iter().map(|ttl| ("ttl", length(ttl))));
    facts.extend(model.options.lease.iter().map(|Lease(lease)| ("lease", length(lease))));
    if model.options.on_crash == Some(OnCrash::InDoubt) {
        facts.push(("on_crash", "in_doubt".into()));
    }
    facts.push(("returns", source(model.returns)));
    facts
}

/// The key as a template, even if it was written as a place or an expression.
fn key(pieces: &[KeyPiece]) -> String {
    let shown = pieces.iter().map(|piece| match piece {
        KeyPiece::Literal(text) => text.value().replace('{', "{{").replace('}', "}}"),
        KeyPiece::Part { source, .. } => format!("{{{source}}}"),
    });
    shown.collect()
}

/// The arguments that the key names, as they are declared.
fn arguments(model: &Model<'_>) -> impl Iterator<Item = String> {
    let named: TokenStream = model.key.iter().filter_map(KeyPiece::part).cloned().collect();
    let inputs = model.function.signature.inputs.iter();
    let inputs = inputs.filter(move |input| Arguments::of_input(input).are_named_in(&named));
    inputs.map(|input| match input {
        FnArg::Typed(argument) => source(without_attributes(argument).to_token_stream()),
        FnArg::Receiver(receiver) => source(receiver),
    })
}

fn without_attributes(argument: &syn::PatType) -> syn::PatType {
    syn::PatType { attrs: Vec::new(), ..argument.clone() }
}

fn length(length: &Length) -> String {
    match length {
        Length::Known(known) => known.as_millis().to_string(),
        Length::Computed(computed) => source(computed),
    }
}
