//! Collected faults, and the words that several of them share.
//!
//! Owns how faults are gathered and become `compile_error!`. Knows nothing of what is checked.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The faults found in one use of a macro, reported all together.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<syn::Error>);

impl Faults {
    /// Notes a fault.
    pub(crate) fn push(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    /// Notes a fault of all of `tokens`.
    pub(crate) fn push_at(&mut self, tokens: &impl ToTokens, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    /// Notes the fault of a result, if it is one.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|fault| self.0.push(fault)).ok()
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One `compile_error!` a fault.
    pub(crate) fn to_tokens(&self) -> TokenStream {
        self.0.iter().map(syn::Error::to_compile_error).collect()
    }

    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().flat_map(|fault| fault.clone().into_iter()).map(|fault| fault.to_string()).collect()
    }
}

impl Extend<syn::Error> for Faults {
    fn extend<I: IntoIterator<Item = syn::Error>>(&mut self, faults: I) {
        self.0.extend(faults);
    }
}

/// The one of `known` that was probably meant by `name`.
pub(crate) fn closest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let name = name.to_lowercase();
    let far = name.chars().count().div_ceil(3);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `` `a`, `b` and `c` ``.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{closest, list};

    #[test]
    fn a_typing_error_is_matched_with_what_was_meant() {
        let known = ["key", "store", "ttl", "lease", "max_attempts"];
        assert_eq!(closest("tll", known), Some("ttl"));
        assert_eq!(closest("max_attempt", known), Some("max_attempts"));
        assert_eq!(closest("Key", known), Some("key"));
        assert_eq!(closest("retries", known), None);
    }

    #[test]
    fn names_are_listed_as_a_sentence_has_them() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
