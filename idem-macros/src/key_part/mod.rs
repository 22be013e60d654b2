//! `#[derive(KeyPart)]`.
//!
//! Owns which types can be derived, so that different values have different renderings, and how the renderings are
//! written. The trait decides which types a field may have.

mod attributes;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Data, DataEnum, DeriveInput, Fields, Generics, Ident, LitStr, Type, Variant};

use crate::diagnostics::Faults;
use crate::runtime_path::{self, RuntimePath};
use crate::source::source;
use attributes::{OfType, OfVariant, Rendering};

/// The impl. If there are faults, the faults and an impl that may be incomplete, so that uses of the type are not
/// reported too.
pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let mut faults = Faults::default();
    let Some(input) = faults.take(syn::parse2::<DeriveInput>(item)) else {
        return faults.to_tokens();
    };
    let OfType { runtime } = attributes::read(&input.attrs, &mut faults);
    let runtime = runtime_path::private(runtime.as_ref().map(|RuntimePath(path)| path));
    let body = body(&input, &runtime, &mut faults);
    let registration = faults.is_empty().then(|| registration(&input, &runtime));
    let faults = faults.to_tokens();
    let implementation = implementation(&input, &runtime, &body);
    quote!(#implementation #registration #faults)
}

fn implementation(input: &DeriveInput, runtime: &TokenStream, body: &TokenStream) -> TokenStream {
    let name = &input.ident;
    let mut generics = input.generics.clone();
    generics.make_where_clause().predicates.extend(bounds(input, runtime));
    let (parameters, arguments, conditions) = generics.split_for_impl();
    // All tokens have this span, because `self` and the key must have the same hygiene as in the fields' tokens.
    quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #parameters #runtime::KeyPart for #name #arguments #conditions {
            fn render(&self, __idem_key: &mut #runtime::KeyBuilder) {
                #body
            }
        }
    }
}

fn body(input: &DeriveInput, runtime: &TokenStream, faults: &mut Faults) -> TokenStream {
    match &input.data {
        Data::Struct(data) => fields(&data.fields, &input.ident, runtime, faults),
        Data::Enum(data) => variants(data, &input.ident, runtime, faults),
        Data::Union(data) => {
            let message = "a union does not say which of its fields is meant, so it has no rendering";
            faults.push_at(&data.union_token, message);
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
        // At the field's type, so that rustc reports a missing `KeyPart` there.
        let span = Span::mixed_site().located_at(field.ty.span());
        let separator = (index > 0).then(|| quote_spanned!(span=> __idem_key.separator();));
        quote_spanned!(span=> #separator #runtime::AnyPart::add_to(&self.#member, __idem_key);)
    });
    rendered.collect()
}

/// The name of the variant, then its data. The name determines how many values follow.
fn variants(data: &DataEnum, name: &Ident, runtime: &TokenStream, faults: &mut Faults) -> TokenStream {
    if data.variants.is_empty() {
        faults.push_at(name, "an enum without variants has no values, so there is nothing to render");
        return TokenStream::new();
    }
    let mut names: Vec<String> = Vec::new();
    let mut arms = Vec::new();
    for variant in &data.variants {
        let text = rendering(variant, faults);
        if names.contains(&text.value()) {
            faults.push_at(&text, format!("two variants are rendered as `{}`: rename one", text.value()));
        }
        names.push(text.value());
        arms.push(arm(variant, &text, runtime, faults));
    }
    quote_spanned!(Span::mixed_site()=> match self { #(#arms)* })
}

fn arm(variant: &Variant, text: &LitStr, runtime: &TokenStream, faults: &mut Faults) -> TokenStream {
    let ident = &variant.ident;
    let (mut bound, mut rendered) = (Vec::new(), Vec::new());
    for (index, (member, field)) in variant.fields.members().zip(&variant.fields).enumerate() {
        attributes::none(&field.attrs, "a field", faults);
        let span = Span::mixed_site().located_at(field.ty.span());
        let binding = Ident::new(&format!("__idem_{index}"), span);
        bound.push(quote_spanned!(span=> #member: #binding));
        rendered.push(quote_spanned! {span=>
            __idem_key.separator();
            #runtime::AnyPart::add_to(#binding, __idem_key);
        });
    }
    quote_spanned! {Span::mixed_site()=>
        Self::#ident { #(#bound),* } => {
            __idem_key.value(#text);
            #(#rendered)*
        }
    }
}

fn rendering(variant: &Variant, faults: &mut Faults) -> LitStr {
    let OfVariant { rename } = attributes::read(&variant.attrs, faults);
    match rename {
        Some(Rendering(text)) => text,
        None => LitStr::new(&variant.ident.unraw().to_string(), variant.ident.span()),
    }
}

/// The registration of the type in the catalogue: its fields with their types, or its variants with their renderings.
fn registration(input: &DeriveInput, runtime: &TokenStream) -> TokenStream {
    let mut unheard = Faults::default();
    let facts: Vec<(String, String)> = match &input.data {
        Data::Struct(data) => named_types(&data.fields).collect(),
        Data::Enum(data) => {
            let variant = |variant: &Variant| {
                let data: Vec<String> =
                    named_types(&variant.fields).map(|(name, ty)| format!("{name}: {ty}")).collect();
                let text = rendering(variant, &mut unheard).value();
                let data = if data.is_empty() { String::new() } else { format!(" {{{}}}", data.join(", ")) };
                (variant.ident.unraw().to_string(), text + &data)
            };
            data.variants.iter().map(variant).collect()
        }
        Data::Union(_) => Vec::new(),
    };
    let span = Span::mixed_site();
    let name = LitStr::new(&input.ident.unraw().to_string(), span);
    let facts = facts.iter().map(|(name, fact)| quote_spanned!(span=> (#name, #fact)));
    quote_spanned! {span=>
        #runtime::register!(#runtime::Registered::key_part(::core::module_path!(), #name, &[#(#facts),*]));
    }
}

fn named_types(fields: &Fields) -> impl Iterator<Item = (String, String)> {
    let name = |member: syn::Member| match member {
        syn::Member::Named(name) => name.unraw().to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    };
    fields.members().map(name).zip(fields.iter().map(|field| source(&field.ty)))
}

/// Bounds that the types of generic fields are `KeyPart`.
fn bounds(input: &DeriveInput, runtime: &TokenStream) -> Vec<syn::WherePredicate> {
    let fields: Vec<&syn::Field> = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    let generic = fields.iter().map(|field| &field.ty).filter(|ty| names_parameter(ty, &input.generics));
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
        let expected = r#"#[automatically_derived]
impl<T> ::idem::__private::KeyPart for Sku<T>
where
    Vec<T>: ::idem::__private::KeyPart,
{
    fn render(&self, __idem_key: &mut ::idem::__private::KeyBuilder) {
        ::idem::__private::AnyPart::add_to(&self.warehouse, __idem_key);
        __idem_key.separator();
        ::idem::__private::AnyPart::add_to(&self.items, __idem_key);
    }
}
::idem::__private::register!(
    ::idem::__private::Registered::key_part(::core::module_path!(), "Sku", &
    [("warehouse", "u16"), ("items", "Vec<T>")])
);
"#;
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
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("Self::EuWest {} => { __idem_key.value(\"eu-west\"); }"), "{text}");
        assert!(text.contains("Self::r#Type {} => { __idem_key.value(\"Type\"); }"), "{text}");
        assert!(text.contains("impl ::other::__private::KeyPart for Region"), "{text}");
    }

    #[test]
    fn a_variant_with_data_is_its_name_and_then_its_data() {
        let text = derived(quote! {
            enum Place<T> { Shop(u16, T), Web { host: String }, Unknown }
        });
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let web = "Self::Web { host: __idem_0 } => { __idem_key.value(\"Web\"); __idem_key.separator(); \
                   ::idem::__private::AnyPart::add_to(__idem_0, __idem_key); }";
        assert!(text.contains(web), "{text}");
        assert!(text.contains("where T: ::idem::__private::KeyPart"), "{text}");
        assert!(text.contains("(\"Shop\", \"Shop {0: u16, 1: T}\")"), "{text}");
        assert!(text.contains("(\"Unknown\", \"Unknown\")"), "{text}");
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
