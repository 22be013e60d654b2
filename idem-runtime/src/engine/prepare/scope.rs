//! The default scope of an annotated function: how it is made, which functions have none, and the rule that
//! no two functions have the same default scope.
//!
//! Records are stored under the scope, so the scope must not depend on how the compiler prints types. The
//! compiler's names are only read to find out whether a function belongs to a type, and to which type.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::Site;
use super::operation::checked;
use crate::error::Error;
use idem_core::Scope;

/// For each default scope of this process, the function and the type that have it.
static DEFAULT_SCOPES: LazyLock<Mutex<HashMap<Arc<str>, Owner>>> = LazyLock::new(Mutex::default);

/// A function, and the compiler's name of its receiver's type.
type Owner = (&'static Site, &'static str);

impl Site {
    /// Makes the default scope. If calls run under this scope, registers it. An error if the function has no
    /// default scope, or if another function, or this function for another type, has registered the scope.
    pub(super) fn default_scope(
        &'static self,
        receiver: Option<&'static str>,
        inside: &str,
    ) -> Result<Scope, Error> {
        let Self { module, function, .. } = self;
        let owner = owner(inside);
        let named = match receiver {
            Some(_) if owner.as_deref().is_some_and(is_generic) => Err(GENERIC),
            Some(receiver) => match bare(receiver) {
                Some(ty) => Ok(format!("{module}::{ty}::{function}")),
                None => Err(GENERIC),
            },
            None if owner.as_deref().is_some_and(|owner| is_type(owner, module)) => Err(NO_RECEIVER),
            None => Ok(format!("{module}::{function}")),
        };
        let name: Arc<str> = named
            .map_err(|why| {
                let detail = format!(
                    "{self}: `{function}` {why}; write `scope = \"..\"` in its attribute, a name that never changes"
                );
                Error::configuration(&format!("{module}::{function}"), detail)
            })?
            .into();
        if self.runs {
            let register = self.register(&name, receiver.unwrap_or_default());
            register.map_err(|why| Error::configuration(&name, why))?;
        }
        checked(Scope::shared(name))
    }

    fn register(&'static self, name: &Arc<str>, receiver: &'static str) -> Result<(), String> {
        let mut scopes = DEFAULT_SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, its_receiver) = *scopes.entry(name.clone()).or_insert((self, receiver));
        drop(scopes);
        let two = match std::ptr::eq(first, self) {
            true if its_receiver == receiver => return Ok(()),
            true => format!("the types {its_receiver} and {receiver} have this default scope at {self}"),
            false => format!("two functions have this default scope, at {first} and at {self}"),
        };
        Err(format!(
            "{two}, and would answer each other's calls; give at least one of them a `scope = \"..\"` of its own"
        ))
    }
}

const GENERIC: &str =
    "is a method of a type, trait or impl with parameters, which must not be part of an operation's name";
const NO_RECEIVER: &str =
    "is a function of a type or trait without `self`, so nothing but its `scope` tells the types apart";

/// The path of a function and its default scope, if it has one, for listing functions without calling them.
/// `inside` is the compiler's name of a type in its body.
#[cfg(feature = "catalogue")]
pub(crate) fn scope_of(
    module: &str,
    function: &str,
    inside: &str,
    is_method: bool,
) -> (String, Option<String>) {
    let owner = owner(inside).unwrap_or_default();
    if !is_method && !is_type(&owner, module) {
        let path = format!("{module}::{function}");
        return (path.clone(), Some(path));
    }
    let ty = type_of(&owner);
    let ty = bare(ty.split('<').next().unwrap_or_default()).unwrap_or_else(|| "_".into());
    let path = format!("{module}::{ty}::{function}");
    let has_default = is_method && !is_generic(&owner);
    (path.clone(), has_default.then_some(path))
}

/// The type in the name of the item that contains a function.
#[cfg(feature = "catalogue")]
fn type_of(owner: &str) -> &str {
    if let Some((_, implemented)) = owner.split_once("<impl ") {
        let ty = implemented.rsplit_once(" for ").map_or(implemented, |(_, ty)| ty);
        return ty.strip_suffix('>').unwrap_or(ty);
    }
    let ty = owner.strip_prefix('<').and_then(|rest| rest.split_once(" as "));
    ty.map_or(owner, |(ty, _)| ty)
}

/// The item that contains the function: `a::b` for `a::b::function::{{closure}}`.
fn owner(inside: &str) -> Option<String> {
    let inside = without_lifetimes(inside);
    let (mut owner, mut last) = inside.rsplit_once("::")?;
    while last.starts_with('{') {
        (owner, last) = owner.rsplit_once("::")?;
    }
    Some(owner.to_owned())
}

/// Whether the item that contains a function is a type, a trait or an impl, and not a module or another
/// function.
fn is_type(owner: &str, module: &str) -> bool {
    let last = owner.rsplit("::").next().unwrap_or(owner);
    owner != module && (last.ends_with('>') || last.starts_with(char::is_uppercase))
}

/// Whether `<Type as Trait>`, `<impl Trait for Type>` or the path of a type has type parameters.
fn is_generic(owner: &str) -> bool {
    let brackets = usize::from(owner.contains(" as ") || owner.contains("<impl "));
    owner.matches('<').count() > brackets
}

/// `Type` for `path::to::Type`; `None` if the name is not a simple path.
fn bare(receiver: &str) -> Option<String> {
    let path = without_lifetimes(receiver);
    let is_path = !path.contains(['<', '(', '[', '&', '*', ' ', '!']);
    is_path.then(|| path.rsplit("::").next().unwrap_or(&path).trim_start_matches("r#").to_owned())
}

/// `name` without lifetime arguments, because compilers print them differently.
fn without_lifetimes(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('\'') {
        kept.push_str(&rest[..at]);
        let after = rest[at + 1..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        rest = after.strip_prefix(", ").unwrap_or(after);
        if let (Some(before), Some(after)) = (kept.strip_suffix('<'), rest.strip_prefix('>')) {
            kept.truncate(before.len());
            rest = after;
        }
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_name_of_a_type_has_no_path_and_no_lifetime() {
        for (receiver, name) in [
            ("app::Payments", Some("Payments")),
            ("app::open::{{closure}}::Payments", Some("Payments")),
            ("app::Payments<'_>", Some("Payments")),
            ("app::Payments<'_, 'a>", Some("Payments")),
            ("u64", Some("u64")),
            ("app::Payments<u8>", None),
            ("app::Payments<'_, u8>", None),
            ("app::Payments<3>", None),
            ("dyn app::Pays", None),
            ("(u8, u8)", None),
            ("&app::Payments", None),
            ("[u8]", None),
        ] {
            assert_eq!(bare(receiver).as_deref(), name, "{receiver}");
        }
    }

    #[cfg(feature = "catalogue")]
    #[test]
    fn a_function_of_a_type_is_told_from_one_of_a_module_and_its_listed_scope_is_the_one_that_calls_have() {
        for (inside, is_method, path, has_default) in [
            ("app::pay::charge::{{closure}}::{{closure}}", false, "app::pay::charge", true),
            ("app::pay::open::charge::{{closure}}", false, "app::pay::charge", true),
            ("app::pay::open::{{closure}}::charge::{{closure}}", false, "app::pay::charge", true),
            (
                "app::pay::open::{{closure}}::Order::charge::{{closure}}",
                true,
                "app::pay::Order::charge",
                true,
            ),
            ("app::pay::Order::charge::{{closure}}", true, "app::pay::Order::charge", true),
            ("app::pay::Order<'a>::charge::{{closure}}", true, "app::pay::Order::charge", true),
            ("app::pay::Order<T>::charge::{{closure}}", true, "app::pay::Order::charge", false),
            ("app::pay::Order::charge::{{closure}}", false, "app::pay::Order::charge", false),
            ("<app::Order as app::Pays>::charge::{{closure}}", true, "app::pay::Order::charge", true),
            ("<app::Order<'_> as app::Pays<'_>>::charge::{{closure}}", true, "app::pay::Order::charge", true),
            ("<app::Order as app::Pays<u8>>::charge::{{closure}}", true, "app::pay::Order::charge", false),
            ("<app::Order<T> as app::Pays>::charge::{{closure}}", true, "app::pay::Order::charge", false),
            ("app::<impl app::Pays for u64>::charge::{{closure}}", true, "app::pay::u64::charge", true),
            ("app::<impl app::Pays<T> for app::Order>::charge", true, "app::pay::Order::charge", false),
            ("app::pay::<impl app::Order>::charge::{{closure}}", true, "app::pay::Order::charge", true),
        ] {
            let is_of_type = path != "app::pay::charge";
            assert_eq!(is_type(&owner(inside).unwrap(), "app::pay"), is_of_type, "{inside}");
            let default = has_default.then(|| path.to_owned());
            assert_eq!(
                scope_of("app::pay", "charge", inside, is_method),
                (path.to_owned(), default),
                "{inside}"
            );
        }
        assert_eq!(owner("app::Pay::charge::{{closure}}").as_deref(), Some("app::Pay"));
        assert!(!is_type("app::Pay", "app::Pay"), "a module with a name like a type's");
        assert_eq!(owner("something else"), None);
    }
}
