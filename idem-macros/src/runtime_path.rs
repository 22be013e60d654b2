//! Where the runtime is: `::idem`, or what `crate = ..` says.
//!
//! Owns that rule, for the attribute and the derive alike.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Expr, ExprPath, Path};

use crate::key::expression::ungrouped;

/// The path that `expr` is, if it means the same everywhere.
pub(crate) fn absolute(expr: &Expr) -> Result<Path, String> {
    if let Expr::Path(ExprPath { qself: None, path, .. }) = ungrouped(expr) {
        let first = path.segments.first().map(|first| first.ident.to_string());
        if path.leading_colon.is_some() || matches!(first.as_deref(), Some("crate" | "$crate")) {
            return Ok(path.clone());
        }
    }
    Err("`crate` is an absolute path to the library: write `::name`, `crate::..` or `$crate::..`".into())
}

/// The module that generated code calls.
pub(crate) fn private(path: Option<&Path>) -> TokenStream {
    match path {
        Some(path) => quote!(#path::__private),
        None => quote_spanned!(Span::mixed_site()=> ::idem::__private),
    }
}
