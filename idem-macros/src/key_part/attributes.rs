//! `#[key_part(..)]`: `crate` on a type, `rename` on a variant.
//!
//! Owns what the attribute may contain and where it may be.

use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, ExprLit, Ident, Lit, LitStr, Path};

use crate::diagnostics::{Fault, Faults};
use crate::runtime_path;

/// The path of the runtime, if a type's attributes give one.
pub(super) fn runtime(attributes: &[Attribute], faults: &mut Faults) -> Option<Path> {
    let mut runtime = None;
    each(attributes, faults, |meta| {
        if !meta.path.is_ident("crate") {
            return Err(meta.error("on a type there is only `#[key_part(crate = ::path)]`"));
        }
        let value: Expr = meta.value()?.parse()?;
        let path =
            runtime_path::absolute(&value).map_err(|message| syn::Error::new_spanned(&value, message))?;
        once(&mut runtime, path, &meta)
    });
    runtime
}

/// The rendering of a variant, if its attributes give one.
pub(super) fn rename(attributes: &[Attribute], faults: &mut Faults) -> Option<LitStr> {
    let mut rename = None;
    each(attributes, faults, |meta| {
        if !meta.path.is_ident("rename") {
            return Err(meta.error("on a variant there is only `#[key_part(rename = \"..\")]`"));
        }
        let value: Expr = meta.value()?.parse()?;
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value else {
            return Err(syn::Error::new_spanned(
                value,
                "a variant is renamed to text: write `rename = \"..\"`",
            ));
        };
        let text = text.clone();
        if text.value().is_empty() {
            return Err(syn::Error::new(
                text.span(),
                "a variant cannot be renamed to the empty text, which is no value in a key",
            ));
        }
        once(&mut rename, text, &meta)
    });
    rename
}

/// Reports attributes in a place where they have no meaning.
pub(super) fn none(attributes: &[Attribute], place: &str, faults: &mut Faults) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key_part")) {
        faults.extend([Fault::at(
            attribute,
            format!("{place} has no `#[key_part(..)]`: every field is part of the key"),
        )]);
    }
}

fn each(
    attributes: &[Attribute],
    faults: &mut Faults,
    mut read: impl FnMut(ParseNestedMeta<'_>) -> syn::Result<()>,
) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key_part")) {
        let parsed = attribute.parse_nested_meta(&mut read);
        faults.take(parsed);
    }
}

fn once<T>(place: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    match place.replace(value) {
        Some(_) => {
            let name = meta.path.get_ident().map(Ident::unraw);
            let name = name.map(|name| name.to_string()).unwrap_or_default();
            Err(meta.error(format!("`{name}` is given twice: keep one")))
        }
        None => Ok(()),
    }
}
