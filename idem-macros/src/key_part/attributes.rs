//! `#[key_part(..)]`: `crate` on a type, `rename` on a variant.
//!
//! Owns what the attribute may contain and where it may be.

use darling::{FromAttributes, FromMeta};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr};

use crate::diagnostics::{Fault, Faults};
use crate::runtime_path::RuntimePath;

/// The options of a type.
#[derive(Default, FromAttributes)]
#[darling(attributes(key_part))]
pub(super) struct OfType {
    #[darling(rename = "crate")]
    pub(super) runtime: Option<RuntimePath>,
}

/// The options of a variant.
#[derive(Default, FromAttributes)]
#[darling(attributes(key_part))]
pub(super) struct OfVariant {
    pub(super) rename: Option<Rendering>,
}

/// The text as which a variant is rendered.
pub(super) struct Rendering(pub(super) LitStr);

impl FromMeta for Rendering {
    fn from_expr(value: &Expr) -> darling::Result<Self> {
        let message = match value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().is_empty() => {
                "a variant cannot be renamed to the empty text, which is no value in a key"
            }
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => return Ok(Self(text.clone())),
            _ => "a variant is renamed to text: write `rename = \"..\"`",
        };
        Err(darling::Error::custom(message).with_span(value))
    }
}

/// The options in `attributes`; the faults otherwise.
pub(super) fn read<T: FromAttributes + Default>(attributes: &[Attribute], faults: &mut Faults) -> T {
    match T::from_attributes(attributes) {
        Ok(options) => options,
        Err(error) => {
            faults.extend(error.flatten());
            T::default()
        }
    }
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
