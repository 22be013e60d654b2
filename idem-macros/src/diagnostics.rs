//! Collected faults, and text that several messages share.
//!
//! Gathers faults, and turns each into a `compile_error!`. Knows no rule that a macro checks.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::Error;

/// The faults found in one use of a macro, reported all together.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Error>);

impl Faults {
    /// Adds a fault that spans all of `tokens`.
    pub(crate) fn push(&mut self, tokens: &impl ToTokens, message: impl Display) {
        self.0.push(Error::new_spanned(tokens, message));
    }

    /// Adds a fault of the whole attribute.
    pub(crate) fn push_whole(&mut self, message: impl Display) {
        self.0.push(Error::new(Span::call_site(), message));
    }

    /// Returns the value of a result. If the result is an error, adds its faults and returns `None`.
    pub(crate) fn take<T>(&mut self, result: Result<T, impl IntoIterator<Item = Error>>) -> Option<T> {
        result.map_err(|faults| self.0.extend(faults)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_tokens(&self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }

    /// Each fault with its message and the source at which it is shown.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let shown = |fault: &Error| {
            let place = fault.span().source_text().unwrap_or_else(|| "the attribute".to_owned());
            format!("error: {fault}\n  --> {place}\n")
        };
        self.0.iter().map(shown).collect()
    }
}

/// darling's faults, worded like messages of rustc.
pub(crate) fn of_darling(faults: darling::Error) -> impl Iterator<Item = Error> {
    Error::from(faults).into_iter().map(|fault| {
        let mut message = fault.to_string();
        for (words, ours) in [
            ("Unknown field: ", "unknown option "),
            (". Did you mean ", "\nhelp: did you mean "),
            (". Available values: ", "\nhelp: must be one of "),
            ("Duplicate field ", "given twice: "),
            ("Unexpected type ", "expected text in quotes, found "),
            ("Unexpected meta-item format `word`", "missing the value\nhelp: write `= ..` after the name"),
            ("Unexpected meta-item format `list`", "missing the value\nhelp: write `= ..` after the name"),
        ] {
            message = message.replace(words, ours);
        }
        Error::new(fault.span(), message)
    })
}

/// The name in `known` that the user probably meant; `None` if no name is similar to `name`.
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

/// The names as a list in a sentence: `` `a`, `b` and `c` ``.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
