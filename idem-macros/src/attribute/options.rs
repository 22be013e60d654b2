//! The options of one attribute, as darling maps them from the list.
//!
//! Owns the list of options, and the kind of each option's value. `kinds` owns the kinds, and `validate` owns
//! the rules between options and about the function.

use std::slice;

use darling::FromMeta;
use darling::ast::NestedMeta;
use darling::util::{Flag, SpannedValue};
use proc_macro2::TokenStream;
use syn::{Error, Ident, Meta};

use super::kinds::{Attempts, Function, Lease, Length, MissingKey, Name, OnCrash, Pace, Value};
use super::list::List;
use crate::diagnostics::{Faults, of_darling};
use crate::runtime_path::RuntimePath;

/// The options without a value.
const FLAGS: [&str; 2] = ["fail_open", "detach"];

#[derive(Debug, Default, FromMeta)]
pub(crate) struct Options {
    pub(crate) key: Option<Value>,
    pub(crate) store: Option<Value>,
    pub(crate) ttl: Option<Length>,
    pub(crate) lease: Option<Lease>,
    pub(crate) scope: Option<Name>,
    pub(crate) fingerprint: Option<Value>,
    pub(crate) wait: Option<Length>,
    pub(crate) terminal: Option<Function>,
    pub(crate) on_crash: Option<OnCrash>,
    pub(crate) recover: Option<Function>,
    pub(crate) max_attempts: Option<Attempts>,
    pub(crate) timeout: Option<Length>,
    pub(crate) retry_after: Option<Pace>,
    pub(crate) record_if: Option<Function>,
    pub(crate) store_timeout: Option<Length>,
    pub(crate) key_fn: Option<Value>,
    pub(crate) fail_open: Flag,
    pub(crate) detach: Flag,
    pub(crate) missing_key: Option<SpannedValue<MissingKey>>,
    pub(crate) transaction: Option<Value>,
    #[darling(rename = "crate")]
    pub(crate) runtime: Option<RuntimePath>,
    /// The names of all options, including options with a fault.
    #[darling(skip)]
    pub(crate) names: Vec<Ident>,
}

impl Options {
    /// Reads every option that can be read. darling first reads each option alone, because it returns nothing
    /// for a list in which one option has a fault.
    pub(crate) fn parse(tokens: TokenStream, faults: &mut Faults) -> Self {
        let List { mut items, names } = List::parse(tokens, faults);
        items.retain(|item| {
            let option = match word_with_value(item) {
                Some(fault) => Err(vec![fault]),
                None => Self::from_list(slice::from_ref(item)).map_err(|fault| at_value(item, fault)),
            };
            faults.take(option).is_some()
        });
        let options = faults.take(Self::from_list(&items).map_err(of_darling)).unwrap_or_default();
        Self { names, ..options }
    }

    /// The identifier `name` in the attribute, for its position. `None` if the attribute does not have this
    /// option. Also finds options that have a fault.
    pub(crate) fn named(&self, name: &str) -> Option<&Ident> {
        self.names.iter().find(|written| *written == name)
    }
}

/// The fault, if `item` is a flag with anything after its name. Checked before darling reads the option,
/// because darling panics at `detach()`.
fn word_with_value(item: &NestedMeta) -> Option<Error> {
    let NestedMeta::Meta(option @ (Meta::List(_) | Meta::NameValue(_))) = item else { return None };
    let is_flag = FLAGS.iter().any(|flag| option.path().is_ident(flag));
    let fault = "this option takes no value: write its name alone, or leave it out";
    is_flag.then(|| Error::new_spanned(option, fault))
}

/// darling's faults, moved to the whole value, because darling itself reports a fault at a single token.
fn at_value(item: &NestedMeta, faults: darling::Error) -> Vec<Error> {
    let at_value = |fault| match item {
        NestedMeta::Meta(Meta::NameValue(option)) => Error::new_spanned(&option.value, fault),
        _ => fault,
    };
    of_darling(faults).map(at_value).collect()
}
