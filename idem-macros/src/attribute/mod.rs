//! `#[idempotent]`: parse -> validate -> model -> expand.
//!
//! `function` reads the item, `list` and `options` read the options, `validate` has every rule and makes the
//! `model`, and `expand` writes the tokens. If there is a fault, the output is the unchanged item and the
//! errors, so that the code that uses the item still compiles.

mod arguments;
mod expand;
mod function;
mod kinds;
mod list;
mod model;
mod names;
mod options;
mod registration;
mod validate;

pub(crate) use arguments::{Arguments, named_at};

use proc_macro2::TokenStream;
use quote::quote;

use crate::diagnostics::Faults;
use function::Function;
use options::Options;

/// The item with its body guarded, or the unchanged item with every fault.
pub(crate) fn expand(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    let mut faults = Faults::default();
    let options = Options::parse(attribute, &mut faults);
    let function = faults.take(Function::parse(item.clone()));
    let model = function.as_ref().and_then(|function| validate::validate(function, options, &mut faults));
    match model {
        Some(model) if faults.is_empty() => expand::expand(&model),
        // An item that is an expression is left out, because rustc would report a missing `;` between it and
        // the errors.
        _ if syn::parse2::<syn::Expr>(item.clone()).is_ok() => faults.to_tokens(),
        _ => {
            let faults = faults.to_tokens();
            // An argument that only the attribute uses must not be reported as unused.
            let allow = function.is_some().then(|| quote!(#[allow(unused_variables)]));
            quote!(#allow #item #faults)
        }
    }
}

#[cfg(test)]
fn faults(attribute: TokenStream, item: &TokenStream) -> Faults {
    let mut faults = Faults::default();
    let options = Options::parse(attribute, &mut faults);
    let function = faults.take(Function::parse(item.clone()));
    if let Some(function) = &function {
        let _ = validate::validate(function, options, &mut faults);
    }
    faults
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod tests;
