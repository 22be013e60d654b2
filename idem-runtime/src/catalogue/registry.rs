//! How annotated functions and `#[derive(KeyPart)]` types get into the catalogue: the linker gathers one
//! constant for each.
//!
//! Owns the content of these constants, and makes the catalogue from them. This code runs only when the
//! program asks for the catalogue. `docs/internals/decisions/0026-the-linker-gathers-the-catalogue.md` has
//! the reasons.

use std::time::Duration;

use idem_core::defaults;

use super::{Catalogue, CatalogueKeyPart, CatalogueOperation, IDEM_REGISTERED_1};
use crate::engine::scope_of;

/// The version of the rules by which the attribute makes scopes and keys. Raise it when the same attribute on
/// the same function finds other records.
const ATTRIBUTE: &str = "1";

/// A function or a type, as the macro saw it.
#[derive(Debug)]
pub struct Registered {
    module: &'static str,
    name: &'static str,
    /// `Some` for a function: the name of a type inside it, and whether the function has a `self`.
    function: Option<(TypeInside, bool)>,
    facts: Facts,
}

/// Returns the compiler's name of a type in the function's body.
type TypeInside = fn() -> &'static str;

/// Facts about a function or a type. Each fact has a name and a text.
type Facts = &'static [(&'static str, &'static str)];

impl Registered {
    /// A function without `self`. `inside` returns the compiler's name of a type in its body.
    #[must_use]
    pub const fn function(
        module: &'static str,
        name: &'static str,
        inside: fn() -> &'static str,
        facts: Facts,
    ) -> Self {
        Self { module, name, function: Some((inside, false)), facts }
    }

    /// As [`function`](Self::function), for a function with `self`.
    #[must_use]
    pub const fn method(
        module: &'static str,
        name: &'static str,
        inside: fn() -> &'static str,
        facts: Facts,
    ) -> Self {
        Self { module, name, function: Some((inside, true)), facts }
    }

    /// A type.
    #[must_use]
    pub const fn key_part(module: &'static str, name: &'static str, facts: Facts) -> Self {
        Self { module, name, function: None, facts }
    }

    fn fact(&self, name: &str) -> Option<String> {
        self.facts.iter().find(|(known, _)| *known == name).map(|(_, fact)| (*fact).to_owned())
    }

    fn operation(&self, inside: &str, is_method: bool) -> CatalogueOperation {
        let Self { module, name, .. } = self;
        let (path, default) = scope_of(module, name, inside, is_method);
        let length = |option: &str, default: Duration| {
            let given = self.fact(option).unwrap_or_else(|| default.as_millis().to_string());
            given.parse().map_or(given, words)
        };
        let arguments = self.facts.iter().filter(|(name, _)| *name == "argument");
        CatalogueOperation {
            scope: self.fact("scope").or(default),
            path,
            key: self.fact("key").unwrap_or_default(),
            arguments: arguments.map(|(_, argument)| (*argument).to_owned()).collect(),
            fingerprint: self.fact("fingerprint"),
            ttl: length("ttl", defaults::TTL),
            lease: length("lease", defaults::LEASE),
            on_crash: self.fact("on_crash").unwrap_or_else(|| "rerun".into()),
            returns: self.fact("returns").unwrap_or_default(),
            attribute: ATTRIBUTE.into(),
        }
    }
}

/// A number of milliseconds as a whole number of the largest possible unit: `90m`, `7d`. One day is `24h`.
fn words(millis: u64) -> String {
    const DAY: u64 = 86_400_000;
    let days = (millis > DAY).then_some((DAY, "d"));
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut units = days.into_iter().chain(units);
    let whole = units.find(|(unit, _)| millis.is_multiple_of(*unit));
    whole.map_or_else(String::new, |(unit, name)| format!("{}{name}", millis / unit))
}

/// The annotated functions and `#[derive(KeyPart)]` types of this program, in its own crate and in its
/// dependencies. They determine whether the next version of the program finds the records of this version.
///
/// The catalogue includes functions that were never called. It lists a generic function, or a method of a
/// generic type, once, with the types as written. On targets that the crate `linkme` does not know, such as
/// WebAssembly, the catalogue is empty.
///
/// If the attribute of a default method of a trait sets no `scope`, the listed scope has the name of the
/// trait. But the scopes of the records have the names of the types that implement the trait.
///
/// ```
/// # use idem_runtime as idem;
/// for operation in idem::catalogue().operations() {
///     println!("{}: {}", operation.scope.as_deref().unwrap_or("no scope"), operation.key);
/// }
/// ```
#[must_use]
pub fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::default();
    for registered in IDEM_REGISTERED_1 {
        let Registered { module, name, function, facts } = registered;
        if let Some((inside, is_method)) = function {
            // The compiler's name of the type in the body, without the last part, which is the type's own
            // name.
            let inside = inside();
            let inside = inside.rsplit_once("::").map_or(inside, |(around, _)| around);
            catalogue.operations.push(registered.operation(inside, *is_method));
        } else {
            let fields = facts.iter().map(|(name, fact)| format!("{name}: {fact}"));
            let fields = fields.collect();
            catalogue.key_parts.push(CatalogueKeyPart { path: format!("{module}::{name}"), fields });
        }
    }
    catalogue.sorted()
}
