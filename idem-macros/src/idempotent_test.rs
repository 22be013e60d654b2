//! `#[idempotent_test]`: a test that runs once for each injury.
//!
//! Owns which functions it accepts. The runs are in `idem-testing`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, Parser as _};
use syn::{Expr, Ident, ItemFn, Path, Token};

use crate::runtime_path;

/// The test, or the unchanged function with its fault.
pub(crate) fn expand(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    match test(attribute, item) {
        Ok(test) => test,
        Err(fault) => {
            let fault = fault.to_compile_error();
            quote!(#[allow(dead_code)] #item #fault)
        }
    }
}

fn test(attribute: TokenStream, item: &TokenStream) -> syn::Result<TokenStream> {
    let tools = tools.parse2(attribute)?;
    let mut function: ItemFn = syn::parse2(item.clone())?;
    let signature = &function.sig;
    if signature.asyncness.is_none() || signature.inputs.len() != 1 || !signature.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(
            signature,
            "expected a test with one argument\nhelp: write `async fn name(trial: idem::testing::Trial) { .. }`",
        ));
    }
    let attributes = std::mem::take(&mut function.attrs);
    let name = &function.sig.ident;
    let text = name.to_string();
    let span = Span::mixed_site();
    Ok(quote_spanned! {span=>
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() {
            #function
            #tools::injure(::core::concat!(::core::module_path!(), "::", #text), #name).assert_whole();
        }
    })
}

/// The path after `crate =`, or the default path of the tools.
fn tools(input: syn::parse::ParseStream<'_>) -> syn::Result<Path> {
    if input.is_empty() {
        return Path::parse.parse2(quote!(::idem::testing));
    }
    let name: Ident = input.call(syn::ext::IdentExt::parse_any)?;
    if name != "crate" {
        return Err(syn::Error::new_spanned(
            name,
            "unknown option\nhelp: the only option is `crate = ::path`",
        ));
    }
    input.parse::<Token![=]>()?;
    let value: Expr = input.parse()?;
    runtime_path::absolute(&value).map_err(|message| syn::Error::new_spanned(&value, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_a_function_that_makes_the_runs() {
        let test = expand(
            quote!(crate = ::tools),
            &quote!(
                #[should_panic]
                async fn once(trial: Trial) {}
            ),
        );
        let text = test.to_string();
        assert!(
            text.starts_with("# [should_panic] # [:: core :: prelude :: v1 :: test] fn once ()"),
            "{text}"
        );
        assert!(text.contains("async fn once (trial : Trial)"), "{text}");
        assert!(text.contains(":: tools :: injure"), "{text}");
    }

    #[test]
    fn what_is_no_test_is_said() {
        for (attribute, item, words) in [
            (
                quote!(),
                quote!(
                    fn once(trial: Trial) {}
                ),
                "help: write `async fn name(trial",
            ),
            (
                quote!(),
                quote!(
                    async fn once() {}
                ),
                "expected a test with one argument",
            ),
            (
                quote!(times = 3),
                quote!(
                    async fn once(trial: Trial) {}
                ),
                "the only option is `crate = ::path`",
            ),
            (
                quote!(crate = tools),
                quote!(
                    async fn once(trial: Trial) {}
                ),
                "absolute path",
            ),
            (
                quote!(),
                quote!(
                    struct Once;
                ),
                "expected",
            ),
        ] {
            let text = expand(attribute, &item).to_string();
            assert!(text.contains("compile_error") && text.contains(words), "{item}: {text}");
        }
    }
}
