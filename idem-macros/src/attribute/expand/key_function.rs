//! The function that `key_fn` names. It takes the arguments of the guarded function. It returns the
//! `RecordKey` of a call with these arguments, or an error if that call would have no record.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{LitStr, Signature, parse_quote};

use super::super::function::conditions;
use super::super::model::Model;
use super::{key, site};
use crate::runtime_path;

pub(super) fn expand(model: &Model<'_>) -> Option<TokenStream> {
    let name = model.key_function.as_ref()?;
    let guarded = model.function;
    let path = runtime_path::private(model.runtime());
    let (import, runtime) = runtime_path::imported(model.runtime());
    let signature = Signature {
        constness: None,
        asyncness: None,
        ident: name.clone(),
        output: parse_quote!(-> #path::KeyOfCall),
        ..guarded.signature.clone()
    };
    let operation = site(model, &runtime, false, &[]);
    let key = key(model, &runtime, false);
    let conditions = conditions(&guarded.attributes);
    let visibility = &guarded.visibility;
    let text = format!("The record of a call of `{}` with these arguments.", guarded.signature.ident);
    let text = LitStr::new(&text, Span::call_site());
    let body = quote_spanned! {Span::mixed_site()=>
        #import
        let __idem_key = #key;
        #runtime::key_of_call(#operation, __idem_key)
    };
    Some(quote! {
        #[doc = #text]
        #(#conditions)*
        #[allow(dead_code, unused_variables, unused_mut, clippy::all, clippy::pedantic, clippy::nursery)]
        #visibility #signature { #body }
    })
}
