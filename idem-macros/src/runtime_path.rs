//! The path of the runtime: `::idem`, or the value of `crate`.
//!
//! Owns the rule for this path, for the attributes and the derive.

use darling::FromMeta;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, ExprPath, Path};

use crate::key::expression::ungrouped;

/// The value of `crate`: an absolute path, which means the same in every module.
#[derive(Debug)]
pub(crate) struct RuntimePath(pub(crate) Path);

impl FromMeta for RuntimePath {
    fn from_expr(value: &Expr) -> darling::Result<Self> {
        if let Expr::Path(ExprPath { qself: None, path, .. }) = ungrouped(value) {
            let first = path.segments.first().map(|first| first.ident.to_string());
            if path.leading_colon.is_some() || matches!(first.as_deref(), Some("crate" | "$crate")) {
                return Ok(Self(path.clone()));
            }
        }
        let message =
            "`crate` is an absolute path to the library: write `::name`, `crate::..` or `$crate::..`";
        Err(darling::Error::custom(message).with_span(value))
    }
}

/// The path of the module `__private`. The generated code calls the functions in this module.
pub(crate) fn private(path: Option<&Path>) -> TokenStream {
    match path {
        Some(path) => quote!(#path::__private),
        None => quote_spanned!(Span::mixed_site()=> ::idem::__private),
    }
}

/// As [`private`], for code in the body of a function. Returns the import of the module, for the beginning of
/// the body, and the imported name. Because of the import, rustc reports a wrong path once and not at each
/// use, and lints about paths do not appear at the user's code.
pub(crate) fn imported(path: Option<&Path>) -> (TokenStream, TokenStream) {
    let module = private(path);
    let name = Ident::new("__idem", Span::mixed_site());
    (quote_spanned!(Span::mixed_site()=> use #module as #name;), name.to_token_stream())
}

/// The name from [`imported`], at the location `place`, so that rustc reports errors about a call only there.
pub(crate) fn shown_at(path: &TokenStream, place: Span) -> TokenStream {
    let shown = |mut token: TokenTree| {
        token.set_span(place);
        token
    };
    path.clone().into_iter().map(shown).collect()
}
