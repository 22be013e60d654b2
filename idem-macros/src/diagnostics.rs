//! Collected faults, and text that several messages share.
//!
//! Owns how faults are gathered and become `compile_error!`. Knows nothing about what is checked.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// One fault: its message and its location.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A fault at these tokens.
    At(TokenStream, String),
    /// A fault of the whole attribute.
    Whole(String),
    /// A fault that a parser found.
    Parsed(syn::Error),
}

impl Fault {
    /// A fault at all of `tokens`.
    pub(crate) fn at(tokens: &impl ToTokens, message: impl Display) -> Self {
        Self::At(tokens.to_token_stream(), message.to_string())
    }

    pub(crate) fn to_error(&self) -> syn::Error {
        match self {
            Self::At(tokens, message) => syn::Error::new_spanned(tokens, message),
            Self::Whole(message) => syn::Error::new(Span::call_site(), message),
            Self::Parsed(error) => error.clone(),
        }
    }
}

/// darling's words in the manner of rustc.
impl From<darling::Error> for Fault {
    fn from(error: darling::Error) -> Self {
        let error = syn::Error::from(error);
        let mut message = error.to_string();
        for (words, ours) in [
            ("Unknown field: ", "unknown option "),
            (". Did you mean ", "\nhelp: did you mean "),
            (". Available values: ", "\nhelp: the options are "),
            ("Duplicate field ", "given twice: "),
            ("Unexpected meta-item format `word`", "missing the value\nhelp: write `= ..` after the name"),
        ] {
            message = message.replace(words, ours);
        }
        Self::Parsed(syn::Error::new(error.span(), message))
    }
}

impl From<syn::Error> for Fault {
    fn from(error: syn::Error) -> Self {
        Self::Parsed(error)
    }
}

/// The faults found in one use of a macro, reported all together.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault of which only the location is known.
    pub(crate) fn push(&mut self, span: Span, message: impl Display) {
        self.0.push(Fault::Parsed(syn::Error::new(span, message)));
    }

    /// Adds a fault at all of `tokens`.
    pub(crate) fn push_at(&mut self, tokens: &impl ToTokens, message: impl Display) {
        self.0.push(Fault::at(tokens, message));
    }

    /// Adds a fault of the whole attribute.
    pub(crate) fn push_whole(&mut self, message: impl Display) {
        self.0.push(Fault::Whole(message.to_string()));
    }

    /// Adds the fault of a result, if it is an error, and returns the value otherwise.
    pub(crate) fn take<T, F: Into<Fault>>(&mut self, result: Result<T, F>) -> Option<T> {
        result.map_err(|fault| self.0.push(fault.into())).ok()
    }

    /// Whether there are no faults.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One `compile_error!` for each fault.
    pub(crate) fn to_tokens(&self) -> TokenStream {
        self.0.iter().map(|fault| fault.to_error().to_compile_error()).collect()
    }

    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.iter().map(|fault| fault.to_error().to_string()).collect()
    }

    /// Each fault with its message and the tokens at which it is shown.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let shown = |fault: &Fault| match fault {
            Fault::At(tokens, message) => format!("error: {message}\n  --> {tokens}\n"),
            Fault::Whole(message) => format!("error: {message}\n  --> the attribute\n"),
            Fault::Parsed(error) => format!("error: {error}\n  --> unknown\n"),
        };
        self.0.iter().map(shown).collect()
    }
}

impl<F: Into<Fault>> Extend<F> for Faults {
    fn extend<I: IntoIterator<Item = F>>(&mut self, faults: I) {
        self.0.extend(faults.into_iter().map(Into::into));
    }
}

/// The name in `known` that `name` probably means.
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
