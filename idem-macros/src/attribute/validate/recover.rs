//! Rules about `recover`: what it may be, and which functions can pass their arguments to it.

use proc_macro2::Ident;
use syn::spanned::Spanned as _;
use syn::{Expr, FnArg, Pat};

use super::super::function::Function;
use super::super::model::{Carrier, Recover};
use super::super::parse::{Given, Value};
use crate::diagnostics::Faults;

/// The function that is called first, and its arguments.
pub(super) fn check(
    option: Given<Value>,
    function: &Function,
    transaction: Option<&Carrier>,
    faults: &mut Faults,
) -> Option<Recover> {
    let Value(value) = super::given(option, faults)?;
    if transaction.is_some() {
        faults.push(
            value.span(),
            "`recover` contradicts `transaction`: what is not committed leaves nothing to recover; leave one out",
        );
    }
    if let Err(message) = callable(&value) {
        faults.push_at(&value, message);
        return None;
    }
    let (receiver, arguments) = handed_on(function, faults)?;
    Some(Recover { call: value, receiver, arguments })
}

fn callable(value: &Expr) -> Result<(), String> {
    match value {
        Expr::Path(_) | Expr::Closure(_) => Ok(()),
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            Err(format!("`recover` is a function, not text: write `recover = {}`", text.value()))
        }
        Expr::Call(_) | Expr::MethodCall(_) => Err(
            "`recover` is a function, and idem calls it with the recovery and the arguments: write its path alone"
                .into(),
        ),
        _ => Err("`recover` is an async function, called before the body is run again: write its path".into()),
    }
}

/// `self`, if there is one, and the arguments by name.
fn handed_on(function: &Function, faults: &mut Faults) -> Option<(Option<Ident>, Vec<Ident>)> {
    let (mut receiver, mut arguments, mut complete) = (None, Vec::new(), true);
    for input in &function.signature.inputs {
        match input {
            FnArg::Receiver(own) => receiver = Some(Ident::new("self", own.self_token.span)),
            FnArg::Typed(argument) => match &*argument.pat {
                Pat::Ident(pattern) if pattern.subpat.is_none() => arguments.push(pattern.ident.clone()),
                pattern => {
                    complete = false;
                    faults.push_at(
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
