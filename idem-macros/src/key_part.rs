//! `#[derive(KeyPart)]`.
//!
//! Owns the rendering of a type's values, and refuses types whose renderings could not tell values apart. The
//! trait `KeyPart` decides which types a field may have.

use darling::ast::{Data, Fields};
use darling::usage::{GenericsExt as _, Purpose, UsesTypeParams as _};
use darling::{FromDeriveInput, FromField, FromVariant};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Generics, Ident, LitStr, Type};

use crate::diagnostics::{Faults, of_darling};
use crate::runtime_path::{self, RuntimePath};
use crate::source::source;

/// A type with its options.
#[derive(FromDeriveInput)]
#[darling(attributes(key_part))]
struct Part {
    ident: Ident,
    generics: Generics,
    data: Data<Variant, Field>,
    #[darling(rename = "crate")]
    runtime: Option<RuntimePath>,
}

#[derive(FromVariant)]
#[darling(attributes(key_part))]
struct Variant {
    ident: Ident,
    fields: Fields<Field>,
    rename: Option<LitStr>,
}

/// A field. It has no options, because every field is part of the key.
#[derive(FromField)]
#[darling(attributes(key_part))]
struct Field {
    ident: Option<Ident>,
    ty: Type,
}

impl Variant {
    /// The text that the variant is rendered as, before its data.
    fn rendering(&self) -> LitStr {
        let name = || LitStr::new(&self.ident.unraw().to_string(), self.ident.span());
        self.rename.clone().unwrap_or_else(name)
    }
}

/// The impl. If the type has faults, returns the faults and an impl that renders nothing, so that rustc does
/// not also report each use of the type in a key.
pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut faults = Faults::default();
    let Some(input) = faults.take(syn::parse2::<DeriveInput>(item)) else {
        return faults.to_tokens();
    };
    let part = faults.take(Part::from_derive_input(&input).map_err(of_darling));
    let runtime = part.as_ref().and_then(|part| part.runtime.as_ref());
    let runtime = runtime_path::private(runtime.map(|RuntimePath(path)| path));
    match part.filter(|part| check(part, &mut faults)) {
        Some(part) => {
            let mut generics = part.generics.clone();
            generics.make_where_clause().predicates.extend(bounds(&part, &runtime));
            let implementation = implementation(&part.ident, &generics, &runtime, &body(&part, &runtime));
            let registration = registration(&part, &runtime);
            quote!(#implementation #registration)
        }
        None => {
            let nothing = implementation(&input.ident, &input.generics, &runtime, &TokenStream::new());
            let faults = faults.to_tokens();
            quote!(#nothing #faults)
        }
    }
}

fn implementation(
    name: &Ident,
    generics: &Generics,
    runtime: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    let (parameters, arguments, conditions) = generics.split_for_impl();
    // All tokens have this span, because `self` and `__idem_key` must have the same hygiene here as in the
    // tokens of the fields.
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #parameters #runtime::KeyPart for #name #arguments #conditions {
            fn render(&self, __idem_key: &mut #runtime::KeyBuilder) {
                #body
            }
        }
    }
}

/// Whether renderings tell the values of the type apart. Adds a fault if they do not.
fn check(part: &Part, faults: &mut Faults) -> bool {
    match &part.data {
        Data::Struct(fields) if fields.is_empty() => {
            faults.push(
                &part.ident,
                "a struct without fields has one value only, so it tells no call from another",
            );
        }
        Data::Enum(variants) if variants.is_empty() => {
            faults.push(&part.ident, "an enum without variants has no values, so there is nothing to render");
        }
        Data::Struct(_) => {}
        Data::Enum(variants) => {
            let texts: Vec<LitStr> = variants.iter().map(Variant::rendering).collect();
            for (index, text) in texts.iter().enumerate() {
                if text.value().is_empty() {
                    faults.push(
                        text,
                        "a variant cannot be renamed to the empty text, which a key cannot have as a value",
                    );
                } else if texts[..index].iter().any(|other| other.value() == text.value()) {
                    faults.push(text, format!("two variants are rendered as `{}`: rename one", text.value()));
                }
            }
        }
    }
    faults.is_empty()
}

fn body(part: &Part, runtime: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    match &part.data {
        Data::Struct(fields) => {
            let (bound, rendered) = bound_and_rendered(fields, runtime);
            let mut rendered = rendered.into_iter();
            let first = rendered.next();
            quote_spanned! {span=>
                let Self { #(#bound),* } = self;
                #first
                #(__idem_key.separator(); #rendered)*
            }
        }
        // Renders the name of the variant, and then its data. The name determines how many values follow, so
        // two different values never have the same rendering.
        Data::Enum(variants) => {
            let arms = variants.iter().map(|variant| {
                let (ident, text) = (&variant.ident, variant.rendering());
                let (bound, rendered) = bound_and_rendered(&variant.fields, runtime);
                quote_spanned! {span=>
                    Self::#ident { #(#bound),* } => {
                        __idem_key.value(#text);
                        #(__idem_key.separator(); #rendered)*
                    }
                }
            });
            quote_spanned!(span=> match self { #(#arms)* })
        }
    }
}

/// The pattern of each field, and its rendering.
fn bound_and_rendered(fields: &Fields<Field>, runtime: &TokenStream) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let fields = fields.iter().enumerate().map(|(index, field)| {
        // These tokens have the location of the field's type, so that rustc reports a missing `KeyPart`
        // there.
        let span = Span::mixed_site().located_at(field.ty.span());
        let (member, binding) = (member(index, field), Ident::new(&format!("__idem_{index}"), span));
        let bound = quote_spanned!(span=> #member: #binding);
        (bound, quote_spanned!(span=> #runtime::AnyPart::add_to(#binding, __idem_key);))
    });
    fields.unzip()
}

fn member(index: usize, field: &Field) -> syn::Member {
    field.ident.clone().map_or_else(|| index.into(), Into::into)
}

/// The registration of the type in the catalogue: its fields with their types, or its variants with their
/// renderings.
fn registration(part: &Part, runtime: &TokenStream) -> TokenStream {
    let facts: Vec<(String, String)> = match &part.data {
        Data::Struct(fields) => named_types(fields).collect(),
        Data::Enum(variants) => {
            let fact = |variant: &Variant| {
                let data: Vec<String> =
                    named_types(&variant.fields).map(|(name, ty)| format!("{name}: {ty}")).collect();
                let data = if data.is_empty() { String::new() } else { format!(" {{{}}}", data.join(", ")) };
                (variant.ident.unraw().to_string(), variant.rendering().value() + &data)
            };
            variants.iter().map(fact).collect()
        }
    };
    let span = Span::mixed_site();
    let name = LitStr::new(&part.ident.unraw().to_string(), span);
    let facts = facts.iter().map(|(name, fact)| quote_spanned!(span=> (#name, #fact)));
    quote_spanned! {span=>
        #runtime::register!(#runtime::Registered::key_part(::core::module_path!(), #name, &[#(#facts),*]));
    }
}

fn named_types(fields: &Fields<Field>) -> impl Iterator<Item = (String, String)> {
    fields.iter().enumerate().map(|(index, field)| {
        let name = field.ident.as_ref().map_or_else(|| index.to_string(), |name| name.unraw().to_string());
        (name, source(&field.ty))
    })
}

/// One bound for each field whose type contains a type parameter: the field's type must be a `KeyPart`.
fn bounds(part: &Part, runtime: &TokenStream) -> Vec<syn::WherePredicate> {
    let parameters = part.generics.declared_type_params();
    let fields: Vec<&Field> = match &part.data {
        Data::Struct(fields) => fields.iter().collect(),
        Data::Enum(variants) => variants.iter().flat_map(|variant| variant.fields.iter()).collect(),
    };
    let types = fields.into_iter().map(|field| &field.ty);
    let generic = types.filter(|ty| !ty.uses_type_params(&Purpose::Declare.into(), &parameters).is_empty());
    generic.map(|ty| syn::parse_quote!(#ty: #runtime::KeyPart)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_rendering_of_its_own_is_refused() {
        for (item, words) in [
            ("union U { a: u8 }", "Unions are not supported"),
            ("struct U;", "without fields"),
            ("struct U {}", "without fields"),
            ("enum U {}", "without variants"),
            ("enum U { #[key_part(rename = \"B\")] A, B }", "two variants"),
            ("enum U { #[key_part(rename = \"\")] A }", "the empty text"),
            ("enum U { #[key_part(rename = 5)] A }", "expected text in quotes, found `int`"),
            ("enum U { #[key_part(name = \"a\")] A }", "unknown option `name`"),
            ("#[key_part(crate = other)] struct U(u8);", "absolute path"),
            ("#[key_part(rename = \"x\")] struct U(u8);", "crate"),
            ("struct U(#[key_part(skip)] u8);", "unknown option `skip`"),
        ] {
            let text = derive(item.parse().unwrap()).to_string();
            assert!(text.contains("compile_error"), "{item}: {text}");
            assert!(text.contains(words), "{item}: {text}");
        }
    }
}
