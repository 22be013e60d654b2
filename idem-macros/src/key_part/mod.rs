//! `#[derive(KeyPart)]`.
//!
//! Owns what a type must be for different values to have different renderings, and how these are
//! written. What a single field may be is the trait's affair.

mod attributes;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Data, DataEnum, DeriveInput, Fields, Generics, Ident, LitStr, Type, Variant};

use crate::diagnostics::Faults;
use crate::runtime_path;

/// The impl. Where something stands in its way, that, and an impl that does nothing, so that the uses
/// of the type are not faults too.
pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut faults = Faults::default();
    let Some(input) = faults.take(syn::parse2::<DeriveInput>(item)) else {
        return faults.to_tokens();
    };
    let runtime = runtime_path::private(attributes::runtime(&input.attrs, &mut faults).as_ref());
    let body = body(&input, &runtime, &mut faults);
    let faults = faults.to_tokens();
    let implementation = implementation(&input, &runtime, &body);
    quote!(#implementation #faults)
}

fn implementation(input: &DeriveInput, runtime: &TokenStream, body: &TokenStream) -> TokenStream {
    let name = &input.ident;
    let mut generics = input.generics.clone();
    generics.make_where_clause().predicates.extend(bounds(input, runtime));
    let (parameters, arguments, conditions) = generics.split_for_impl();
    // All of it, as `self` and `key` must be those of the fields' tokens.
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #parameters #runtime::KeyPart for #name #arguments #conditions {
            fn render(&self, key: &mut #runtime::KeyBuilder) {
                #body
            }
        }
    }
}

fn body(input: &DeriveInput, runtime: &TokenStream, faults: &mut Faults) -> TokenStream {
    match &input.data {
        Data::Struct(data) => fields(&data.fields, &input.ident, runtime, faults),
        Data::Enum(data) => variants(data, &input.ident, faults),
        Data::Union(data) => {
            let message = "a union does not say which of its fields is meant, so it has no rendering";
            faults.push(data.union_token.span, message);
            TokenStream::new()
        }
    }
}

/// Each field in order, and separators between them.
fn fields(fields: &Fields, name: &Ident, runtime: &TokenStream, faults: &mut Faults) -> TokenStream {
    if fields.is_empty() {
        faults.push(
            name.span(),
            "a struct without fields has one value only, so it tells no call from another",
        );
        return TokenStream::new();
    }
    let rendered = fields.members().zip(fields).enumerate().map(|(index, (member, field))| {
        attributes::none(&field.attrs, "a field", faults);
        // At the field's type, where a missing `KeyPart` is to be seen.
        let span = Span::mixed_site().located_at(field.ty.span());
        let separator = (index > 0).then(|| quote_spanned!(span=> key.separator();));
        quote_spanned!(span=> #separator #runtime::KeyPart::render(&self.#member, key);)
    });
    rendered.collect()
}

/// The name of the variant.
fn variants(data: &DataEnum, name: &Ident, faults: &mut Faults) -> TokenStream {
    if data.variants.is_empty() {
        faults.push(name.span(), "an enum without variants has no values, so there is nothing to render");
        return TokenStream::new();
    }
    let mut names: Vec<String> = Vec::new();
    let mut arms = Vec::new();
    for variant in &data.variants {
        let text = rendering(variant, faults);
        if names.contains(&text.value()) {
            faults.push(text.span(), format!("two variants are rendered as `{}`: rename one", text.value()));
        }
        names.push(text.value());
        let ident = &variant.ident;
        arms.push(quote_spanned!(Span::mixed_site()=> Self::#ident { .. } => #text));
    }
    quote_spanned!(Span::mixed_site()=> key.value(match self { #(#arms),* });)
}

fn rendering(variant: &Variant, faults: &mut Faults) -> LitStr {
    if !variant.fields.is_empty() {
        faults.extend([syn::Error::new_spanned(
            &variant.fields,
            "a variant with data has no rendering of its own: make the variant's data a struct with \
             `#[derive(KeyPart)]`, or write `impl KeyPart` by hand",
        )]);
    }
    let own = || LitStr::new(&variant.ident.unraw().to_string(), variant.ident.span());
    attributes::rename(&variant.attrs, faults).unwrap_or_else(own)
}

/// That the types of generic fields are parts.
fn bounds(input: &DeriveInput, runtime: &TokenStream) -> Vec<syn::WherePredicate> {
    let Data::Struct(data) = &input.data else {
        return Vec::new();
    };
    let generic = data.fields.iter().map(|field| &field.ty).filter(|ty| names_parameter(ty, &input.generics));
    generic.map(|ty| syn::parse_quote!(#ty: #runtime::KeyPart)).collect()
}

fn names_parameter(ty: &Type, generics: &Generics) -> bool {
    struct Names<'g>(&'g Generics, bool);

    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let first = path.segments.first().map(|segment| &segment.ident);
            self.1 |= self.0.type_params().any(|parameter| Some(&parameter.ident) == first);
            visit::visit_path(self, path);
        }
    }

    let mut names = Names(generics, false);
    names.visit_type(ty);
    names.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(item: TokenStream) -> String {
        let file = syn::parse2(derive(item)).unwrap();
        prettyplease::unparse(&file)
    }

    #[test]
    fn fields_are_rendered_in_order_with_separators() {
        let expected = "\
#[automatically_derived]
impl<T> ::idem::__private::KeyPart for Sku<T>
where
    Vec<T>: ::idem::__private::KeyPart,
{
    fn render(&self, key: &mut ::idem::__private::KeyBuilder) {
        ::idem::__private::KeyPart::render(&self.warehouse, key);
        key.separator();
        ::idem::__private::KeyPart::render(&self.items, key);
    }
}
";
        assert_eq!(
            derived(quote!(
                struct Sku<T> {
                    warehouse: u16,
                    items: Vec<T>,
                }
            )),
            expected
        );
    }

    #[test]
    fn a_variant_is_rendered_as_its_name_or_as_the_attribute_says() {
        let text = derived(quote! {
            #[key_part(crate = ::other)]
            enum Region { #[key_part(rename = "eu-west")] EuWest, r#Type, Us {} }
        });
        assert!(text.contains("Self::EuWest { .. } => \"eu-west\""), "{text}");
        assert!(text.contains("Self::r#Type { .. } => \"Type\""), "{text}");
        assert!(text.contains("impl ::other::__private::KeyPart for Region"), "{text}");
    }

    #[test]
    fn what_has_no_rendering_of_its_own_is_refused() {
        for (item, words) in [
            (quote!(union U { a: u8 }), "a union"),
            (
                quote!(
                    struct U;
                ),
                "without fields",
            ),
            (
                quote!(
                    struct U {}
                ),
                "without fields",
            ),
            (
                quote!(
                    enum U {}
                ),
                "without variants",
            ),
            (
                quote!(
                    enum U {
                        A(u8),
                    }
                ),
                "with data",
            ),
            (
                quote!(
                    enum U {
                        #[key_part(rename = "B")]
                        A,
                        B,
                    }
                ),
                "two variants",
            ),
            (
                quote!(
                    enum U {
                        #[key_part(rename = "")]
                        A,
                    }
                ),
                "empty",
            ),
            (
                quote!(
                    enum U {
                        #[key_part(rename = 5)]
                        A,
                    }
                ),
                "text",
            ),
            (
                quote!(
                    enum U {
                        #[key_part(name = "a")]
                        A,
                    }
                ),
                "rename",
            ),
            (
                quote!(
                    #[key_part(crate = other)]
                    struct U(u8);
                ),
                "absolute path",
            ),
            (
                quote!(
                    #[key_part(rename = "x")]
                    struct U(u8);
                ),
                "crate",
            ),
            (
                quote!(
                    struct U(#[key_part(skip)] u8);
                ),
                "a field",
            ),
        ] {
            let text = derive(item.clone()).to_string();
            assert!(text.contains("compile_error"), "{item}: {text}");
            assert!(text.contains(words), "{item}: {text}");
        }
    }
}
