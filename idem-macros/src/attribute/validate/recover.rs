//! Rules about `recover`: which functions can pass their arguments to the function in this option.

use proc_macro2::Ident;
use syn::{FnArg, Pat};

use super::super::function::{Function, conditions};
use super::super::kinds;
use super::super::model::Recover;
use crate::diagnostics::Faults;

/// The function in the option `recover`, and the arguments that it gets.
pub(super) fn check(
    option: Option<kinds::Function>,
    function: &Function,
    faults: &mut Faults,
) -> Option<Recover> {
    let kinds::Function(call) = option?;
    let (receiver, arguments) = handed_on(function, faults)?;
    Some(Recover { call, receiver, arguments })
}

/// The names to pass on: `self`, if `function` has it, and the arguments. `None` if an argument cannot be
/// passed on.
fn handed_on(function: &Function, faults: &mut Faults) -> Option<(Option<Ident>, Vec<Ident>)> {
    let (mut receiver, mut arguments, mut complete) = (None, Vec::new(), true);
    for input in &function.signature.inputs {
        match input {
            FnArg::Receiver(own) => receiver = Some(Ident::new("self", own.self_token.span)),
            FnArg::Typed(argument) if conditions(&argument.attrs).next().is_some() => {
                complete = false;
                faults.push(
                    argument,
                    "`recover` takes all arguments, and a `cfg` may remove this one: put the `cfg` on the function",
                );
            }
            FnArg::Typed(argument) => match &*argument.pat {
                Pat::Ident(pattern) if pattern.subpat.is_none() => arguments.push(pattern.ident.clone()),
                pattern => {
                    complete = false;
                    faults.push(
                        pattern,
                        "`recover` is given each argument by reference, so each needs a name: write one here, and take \
                         it apart in the body",
                    );
                }
            },
        }
    }
    complete.then_some((receiver, arguments))
}
