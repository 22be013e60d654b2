//! `#[idempotent_test]`: a test that runs its function many times. Each run after the first has one injury,
//! such as a crash or a lost answer, at one point: a store operation or an await.
//!
//! Owns the rules for which functions the attribute accepts. `idem-testing` runs the test.

use darling::FromMeta;
use darling::ast::NestedMeta;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{ItemFn, parse_quote};

use crate::diagnostics::{Faults, of_darling};
use crate::runtime_path::RuntimePath;

#[derive(FromMeta)]
struct Options {
    /// The path of the testing tools: `::idem::testing` unless set.
    #[darling(rename = "crate")]
    tools: Option<RuntimePath>,
}

/// The test, or the unchanged function with its faults.
pub(crate) fn expand(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    let mut faults = Faults::default();
    test(attribute, item, &mut faults).unwrap_or_else(|| {
        let faults = faults.to_tokens();
        quote!(#[allow(dead_code)] #item #faults)
    })
}

fn test(attribute: TokenStream, item: &TokenStream, faults: &mut Faults) -> Option<TokenStream> {
    let options = faults.take(NestedMeta::parse_meta_list(attribute))?;
    let tools = match faults.take(Options::from_list(&options).map_err(of_darling))?.tools {
        Some(RuntimePath(path)) => path,
        None => parse_quote!(::idem::testing),
    };
    let mut function: ItemFn = faults.take(syn::parse2(item.clone()))?;
    let signature = &function.sig;
    if signature.asyncness.is_none() || signature.inputs.len() != 1 || !signature.generics.params.is_empty() {
        faults.push(
            signature,
            "expected a test with one argument\nhelp: write `async fn name(trial: idem::testing::Trial) { .. }`",
        );
        return None;
    }
    let attributes = std::mem::take(&mut function.attrs);
    let name = &function.sig.ident;
    let text = name.to_string();
    let span = Span::mixed_site();
    Some(quote_spanned! {span=>
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() {
            #function
            #tools::injure(::core::concat!(::core::module_path!(), "::", #text), #name).assert_whole();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_test_is_said() {
        for (attribute, item, words) in [
            ("", "fn once(trial: Trial) {}", "help: write `async fn name(trial"),
            ("", "async fn once() {}", "expected a test with one argument"),
            (
                "times = 3",
                "async fn once(trial: Trial) {}",
                "unknown option `times`\\nhelp: must be one of `crate`",
            ),
            ("crate = tools", "async fn once(trial: Trial) {}", "absolute path"),
            ("", "struct Once;", "expected"),
        ] {
            let text = expand(attribute.parse().unwrap(), &item.parse().unwrap()).to_string();
            assert!(text.contains("compile_error") && text.contains(words), "{item}: {text}");
        }
    }
}
