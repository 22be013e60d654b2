//! Rules about the function under the attribute.
//!
//! Owns the rules for every guarded function, and the rules by which some options restrict the function.

use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{FnArg, GenericParam, PatType, Receiver, ReceiverKind, ReturnType, Signature, Type};

use super::super::function::{Function, Unnameable, conditions};
use crate::diagnostics::Faults;

/// Whether the function is a test. If it is, adds a fault, because a test has no arguments that tell one call
/// from another. No other fault of a test is reported, because an attribute such as `#[tokio::test]` above
/// this one may already have replaced the user's code.
pub(super) fn is_test(function: &Function, faults: &mut Faults) -> bool {
    let of_test = function.attributes.iter().find(|attribute| {
        attribute.path().segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name == "test" || name.ends_with("_test")
        })
    });
    if let Some(attribute) = of_test {
        faults.push(
            attribute,
            "a test cannot be idempotent, in neither order of the attributes: put `#[idempotent]` on the async function that the \
             test calls",
        );
    }
    of_test.is_some()
}

/// Checks the function, and returns its return type. `None` if the function is not async, or if its signature
/// does not show the type of its result.
pub(super) fn check<'f>(function: &'f Function, faults: &mut Faults) -> Option<&'f Type> {
    let signature = &function.signature;
    if let Some(constness) = &signature.constness {
        faults.push(constness, "a `const fn` cannot wait for a store: remove `const`");
    }
    if let Some(abi) = &signature.abi {
        faults.push(abi, "an `extern` function cannot be async: guard an async function that this one calls");
    }
    for attribute in &function.attributes {
        let repeated = attribute.path().segments.last().is_some_and(|last| last.ident == "idempotent");
        if repeated {
            faults.push(attribute, "`#[idempotent]` is on this function twice: keep one, with all options");
        }
    }
    if !function.is_async() {
        faults.push(
            &signature.fn_token,
            "`#[idempotent]` needs an `async fn`: write `async` here, or guard an async function that this one calls",
        );
        return None;
    }
    returns(function, faults)
}

fn returns<'f>(function: &'f Function, faults: &mut Faults) -> Option<&'f Type> {
    let Some(returns) = function.returns() else {
        match &function.signature.output {
            ReturnType::Type(_, ty) => faults.push(
                ty,
                "the result is not visible in this type: write `async fn`, or \
                 `Pin<Box<dyn Future<Output = Result<T, E>>>>`",
            ),
            ReturnType::Default => faults.push(
                &function.signature.ident,
                "an idempotent function returns a `Result`: what it gives is recorded, and what idem has to say is an \
                 error; write `-> Result<T, E>` with `E: From<idem::Error>`",
            ),
        }
        return None;
    };
    let unnameable = Unnameable::of(returns);
    if let Some(opaque) = unnameable.opaque {
        faults
            .push(opaque, "an `impl` type has no name to decode a recorded result to: write the type itself");
    }
    if let Some(borrowed) = unnameable.borrowed {
        faults.push(
            borrowed,
            "a recorded result is given to later calls, so it cannot be a reference: return an owned value",
        );
    }
    Some(returns)
}

/// Without the option `scope`, the path of the function names the operation. A generic function needs the
/// option, because its default name would have to contain the names of the type arguments. These names change
/// with the compiler, with a store's wrappers and with versions of libraries. Reports only the first
/// parameter or argument that makes the function generic.
pub(super) fn require_default_scope(signature: &Signature, faults: &mut Faults) {
    let name = signature.ident.unraw().to_string();
    let missing = |what: String| {
        format!(
            "missing `scope`: `{name}` has {what}, which must not be part of the operation's name\n\
             help: add a name that never changes, such as `scope = \"{name}\"`"
        )
    };
    for parameter in &signature.generics.params {
        let kind = match parameter {
            GenericParam::Lifetime(_) => continue,
            GenericParam::Type(ty) => format!("the type parameter `{}`", ty.ident),
            GenericParam::Const(constant) => format!("the const parameter `{}`", constant.ident),
        };
        faults.push(parameter, missing(kind));
        return;
    }
    for input in &signature.inputs {
        let FnArg::Typed(argument) = input else { continue };
        if let Some(opaque) = Unnameable::of(&argument.ty).opaque {
            faults.push(opaque, missing("an argument of an `impl` type".into()));
            return;
        }
    }
}

/// Reports the arguments that borrow. A detached body outlives its caller, so it cannot borrow from the
/// caller.
pub(super) fn require_owned(signature: &Signature, faults: &mut Faults) {
    for input in &signature.inputs {
        let mut borrows = Borrows::default();
        match input {
            FnArg::Receiver(receiver) if matches!(receiver.kind, ReceiverKind::Reference(..)) => {
                borrows.0 = true;
            }
            // The argument has a `cfg`, so it may not exist. If it does, rustc reports the borrow.
            FnArg::Typed(argument) if conditions(&argument.attrs).next().is_some() => {}
            FnArg::Typed(PatType { ty, .. })
            | FnArg::Receiver(Receiver { kind: ReceiverKind::Typed(_, ty), .. }) => {
                borrows.visit_type(ty);
            }
            FnArg::Receiver(_) => {}
        }
        let message = "a detached body outlives its caller and cannot borrow: take this by value, as an `Arc`, a clone or \
                       an owned type";
        match input {
            _ if !borrows.0 => {}
            FnArg::Receiver(receiver) => faults.push(receiver, message),
            FnArg::Typed(argument) => faults.push(&argument.ty, message),
        }
    }
}

/// Finds a borrow in a type.
#[derive(Default)]
struct Borrows(bool);

impl<'ast> Visit<'ast> for Borrows {
    fn visit_type_reference(&mut self, ty: &'ast syn::TypeReference) {
        match &ty.lifetime {
            Some(lifetime) if lifetime.ident == "static" => visit::visit_type(self, &ty.elem),
            _ => self.0 = true,
        }
    }

    fn visit_lifetime(&mut self, lifetime: &'ast syn::Lifetime) {
        self.0 |= lifetime.ident != "static";
    }

    // A lifetime in a bound with `for<..>`, in a function pointer or in `Fn(..)` usually does not borrow from
    // the caller. If it does, rustc reports that.
    fn visit_trait_bound(&mut self, bound: &'ast syn::TraitBound) {
        if bound.lifetimes.is_none() {
            visit::visit_trait_bound(self, bound);
        }
    }
    fn visit_type_fn_ptr(&mut self, _: &'ast syn::TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast syn::ParenthesizedGenericArguments) {}
}
