//! The tokens of a guarded function.
//!
//! Owns the expansion. Keep it small: everything that does not depend on the function is in the runtime.
//! Checks nothing. Our names are `mixed_site`, so they do not clash with the user's locals. They begin with
//! `__idem`, because a `let` with the name of one of the user's constants would compare with the constant
//! instead of binding the name.

mod key_function;

use std::time::Duration;

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, FnArg, LitInt, LitStr, PatType};

use super::Arguments;
use super::function::conditions;
use super::kinds::{Attempts, Function, Lease, Length, MissingKey, OnCrash, Pace};
use super::model::{Carrier, Model, Recover, Scope};
use super::registration;
use crate::key::expression::by_reference;
use crate::key::{Fingerprinted, KeyPiece};
use crate::runtime_path;

/// The function with its body guarded.
pub(crate) fn expand(model: &Model<'_>) -> TokenStream {
    let (import, runtime) = runtime_path::imported(model.runtime());
    let codec = codec(model, &runtime);
    let operation = operation(model, &runtime);
    let store = store(model, &runtime);
    let key = key(model, &runtime, true);
    let fingerprint = fingerprint(model, &runtime);
    let body = body(model);
    let body = match model.detach() {
        Some(_) => body,
        None => quote_spanned! {Span::mixed_site()=> ::core::pin::pin!(::core::option::Option::Some(#body)) },
    };
    let (body, call) = match &model.transaction {
        Some(carrier) => (None, within(carrier, &runtime, &body)),
        None => {
            let body = quote_spanned!(Span::mixed_site()=> let __idem_body = #body;);
            (Some(body), call(model, &runtime))
        }
    };
    let detachable = detachable(model, &runtime);
    let registration = registration::expand(model, &runtime);
    // The result is bound to a name so that in edition 2021 no temporary outlives the arguments.
    let guarded = model.function.with_code(quote_spanned! {Span::mixed_site()=>
        #import
        #registration
        #(#detachable)*
        let __idem_codec = #codec;
        let __idem_operation = #operation;
        let __idem_store = #store;
        let __idem_key = #key;
        #fingerprint
        #body
        let __idem_result = #call;
        __idem_result
    });
    let key_function = key_function::expand(model);
    quote_spanned!(Span::mixed_site()=> #guarded #key_function)
}

/// A span for our code at the location of the user's code, so that rustc reports errors there.
fn beside(user: Span) -> Span {
    Span::mixed_site().located_at(user)
}

fn store(model: &Model<'_>, runtime: &TokenStream) -> TokenStream {
    let span = beside(model.store.span());
    let runtime = runtime_path::shown_at(runtime, span);
    let store = by_reference(&model.store);
    let make = if model.transaction.is_some() { "transaction_store" } else { "store" };
    let make = Ident::new(make, span);
    quote_spanned!(span=> #runtime::#make(#store))
}

/// The call of the runtime's function `codec`. Only this function has a bound on the return type. The call
/// begins and ends exactly where the return type does, because otherwise rustc would report an error twice.
fn codec(model: &Model<'_>, runtime: &TokenStream) -> TokenStream {
    let returns = model.returns.to_token_stream();
    let places: Vec<Span> = returns.clone().into_iter().map(|token| token.span()).collect();
    let [begin, end] =
        [places.first(), places.last()].map(|place| place.copied().unwrap_or_else(Span::call_site));
    let runtime = runtime_path::shown_at(runtime, begin);
    let begin = quote_spanned!(begin=> #runtime::codec::<);
    let end = quote_spanned!(end=> >());
    let functions = [("terminal", &model.options.terminal), ("record_if", &model.options.record_if)];
    let functions = functions
        .into_iter()
        .filter_map(|(name, function)| function.as_ref().map(|Function(function)| setting(name, function)));
    let pace = model.options.retry_after.iter().filter_map(|pace| match pace {
        Pace::By(function) => Some(setting("retry_after", function)),
        _ => None,
    });
    quote_spanned!(Span::mixed_site()=> #begin #returns #end #(#functions)* #(#pace)*)
}

/// Calls of `detachable`, which requires that the type of each argument of a detached function is `Send`. If
/// a type is not `Send`, rustc reports the error at this type.
fn detachable(model: &Model<'_>, runtime: &TokenStream) -> Vec<TokenStream> {
    if model.detach().is_none() {
        return Vec::new();
    }
    let types = model.function.named_types();
    types
        .map(|PatType { attrs, ty, .. }| {
            let span = beside(ty.span());
            let runtime = runtime_path::shown_at(runtime, span);
            let conditions = conditions(attrs);
            quote_spanned!(span=> #(#conditions)* #runtime::detachable::<#ty>();)
        })
        .collect()
}

/// Moves whole arguments into a detached body: the arguments that the body names, and the arguments whose
/// names begin with `_`. So a guard such as `_permit`, or a field that the body does not use, is dropped when
/// the body ends, and not when the caller goes away. The other arguments are not moved, so that rustc can
/// still report them as unused.
fn held(model: &Model<'_>) -> Option<TokenStream> {
    model.detach()?;
    let code = model.function.code().stream();
    let held = model.function.signature.inputs.iter().map(|input| {
        let attributes = match input {
            FnArg::Receiver(receiver) => &receiver.attrs,
            FnArg::Typed(argument) => &argument.attrs,
        };
        let conditions: Vec<&Attribute> = conditions(attributes).collect();
        let arguments = Arguments::of_input(input);
        let names = arguments.held_for(&code);
        let hold = |name| {
            quote_spanned! {Span::mixed_site()=>
                #(#conditions)*
                #[allow(clippy::used_underscore_binding)]
                let _ = &#name;
            }
        };
        names.map(hold).collect::<TokenStream>()
    });
    Some(held.collect())
}

/// The call into the runtime. rustc reports errors about a detached body at the word `detach`.
fn call(model: &Model<'_>, runtime: &TokenStream) -> TokenStream {
    let (run, span) = match (model.detach(), model.options.missing_key.as_deref()) {
        (Some(word), _) => ("run_detached", beside(word)),
        (None, Some(MissingKey::Run)) => ("run_or_unguarded", Span::mixed_site()),
        (None, _) => ("run", Span::mixed_site()),
    };
    let run = Ident::new(run, Span::mixed_site());
    let body = Ident::new("__idem_body", span);
    quote_spanned! {Span::mixed_site()=>
        #runtime::#run(
            __idem_codec, __idem_operation, __idem_store, __idem_key, #body
        ).await
    }
}

/// The call in the caller's transaction. The body borrows the transaction under the name of the argument.
fn within(carrier: &Carrier, runtime: &TokenStream, body: &TokenStream) -> TokenStream {
    let Carrier { name, mutability, place } = carrier;
    // The user's `mut` is for the variable that the body sees. This variable has the name of the argument,
    // but is not the argument. The statement prevents rustc's warning that the argument need not be `mut`.
    let used = mutability.map(|_| quote_spanned!(Span::mixed_site()=> let _ = &mut #name;));
    let mut lent = name.clone();
    lent.set_span(name.span().located_at(*place));
    let span = beside(*place);
    let runtime = runtime_path::shown_at(runtime, span);
    // The call and its `.await` have one location, because otherwise rustc would report an error twice.
    let entered = quote_spanned! {span=>
        #runtime::enter(__idem_codec, __idem_operation, __idem_store, __idem_key, #lent).await
    };
    quote_spanned! {Span::mixed_site()=> {
        #used
        let __idem_entered = #entered;
        let mut __idem_entered = match __idem_entered {
            ::core::result::Result::Ok(__idem_entered) => __idem_entered,
            ::core::result::Result::Err(__idem_result) => return __idem_result,
        };
        let __idem_running = __idem_entered.running();
        let __idem_ended = {
            let #mutability #name = __idem_entered.carrier();
            let _ = &#name;
            __idem_running.drive(#body).await
        };
        __idem_entered.leave(__idem_ended).await
    }}
}

/// The operation: its `Site` with the constant settings, and then the settings that are computed for each
/// call.
fn operation(model: &Model<'_>, runtime: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let options = &model.options;
    let (mut constant, mut computed) = (Vec::new(), Vec::new());
    let lengths = [
        ("ttl", options.ttl.as_ref()),
        ("lease", options.lease.as_ref().map(|Lease(lease)| lease)),
        ("wait", options.wait.as_ref()),
        ("timeout", options.timeout.as_ref()),
        ("store_timeout", options.store_timeout.as_ref()),
    ];
    for (name, length) in lengths {
        match length {
            Some(Length::Known(known)) if name == "timeout" => {
                constant.push(field(name, &some(&duration(*known))));
            }
            Some(Length::Known(known)) => constant.push(field(name, &duration(*known))),
            Some(Length::Computed(value)) => computed.push(setting(name, value)),
            None => {}
        }
    }
    match &options.retry_after {
        Some(Pace::Known(shortest, longest)) => {
            let shortest = duration(*shortest);
            let longest = match longest.map(duration) {
                Some(longest) => some(&longest),
                None => quote_spanned!(span=> ::core::option::Option::None),
            };
            let pace = quote_spanned!(span=> #runtime::RetryAfter::between(#shortest, #longest));
            constant.push(field("retry_after", &some(&pace)));
        }
        Some(Pace::Computed(value)) => computed.push(setting("retry_after", value)),
        Some(Pace::By(_)) | None => {}
    }
    match options.on_crash {
        Some(OnCrash::Rerun) => constant.push(quote_spanned!(span=> on_crash: #runtime::OnCrash::Rerun)),
        Some(OnCrash::InDoubt) => constant.push(quote_spanned!(span=> on_crash: #runtime::OnCrash::InDoubt)),
        None => {}
    }
    match &options.max_attempts {
        Some(Attempts(number @ Expr::Lit(_))) => constant.push(field("max_attempts", &some(number))),
        Some(Attempts(number)) => computed.push(setting("max_attempts", number)),
        None => {}
    }
    if options.fail_open.is_present() {
        constant.push(quote_spanned!(span=> fail_open: true));
    }
    if model.recover.is_some() {
        constant.push(quote_spanned!(span=> recovers: true));
    }
    let site = site(model, runtime, true, &constant);
    quote_spanned!(span=> #site #(#computed)*)
}

/// `.name(value)`, at the location of the value.
fn setting(name: &str, value: &impl ToTokens) -> TokenStream {
    let span = beside(value.span());
    let name = Ident::new(name, span);
    quote_spanned!(span=> .#name(#value))
}

/// `name: value`, at the location of the value.
fn field(name: &str, value: &TokenStream) -> TokenStream {
    let span = beside(value.span());
    let name = Ident::new(name, span);
    quote_spanned!(span=> #name: #value)
}

fn some(value: &impl ToTokens) -> TokenStream {
    quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#value))
}

fn duration(known: Duration) -> TokenStream {
    let span = Span::mixed_site();
    // A duration is at most 100 years long, so its milliseconds fit a `u64`.
    let millis = LitInt::new(&known.as_millis().to_string(), span);
    quote_spanned!(span=> ::core::time::Duration::from_millis(#millis))
}

/// The operation, with its scope and these constant settings. `runs` is `false` in the function for `key_fn`,
/// which never runs the body.
pub(super) fn site(
    model: &Model<'_>,
    runtime: &TokenStream,
    runs: bool,
    settings: &[TokenStream],
) -> TokenStream {
    let span = Span::mixed_site();
    let unset = quote_spanned!(span=> #runtime::Policy::new());
    let policy = match settings {
        [] => unset,
        settings => quote_spanned!(span=> #runtime::Policy { #(#settings,)* ..#unset }),
    };
    let name = LitStr::new(&model.function.signature.ident.unraw().to_string(), span);
    let none = quote_spanned!(span=> ::core::option::Option::None);
    let (scope, receiver) = match &model.scope {
        Scope::Named(scope) => (some(scope), none),
        Scope::OfFunction => (none.clone(), none),
        Scope::OfMethod => (none, some(&quote_spanned!(span=> ::core::any::type_name::<Self>()))),
    };
    let site = quote_spanned! {span=>
        #runtime::Site::new(#scope, ::core::module_path!(), #name, #runs, #policy,)
    };
    // The block keeps `SITE` apart from an item `SITE` in the body, because items have no hygiene. The type
    // name of the closure tells the runtime which item contains the function. A macro cannot see that item.
    quote_spanned! {span=> {
        static SITE: #runtime::Site = #site;
        #runtime::Operation::at(&SITE, #receiver, &|| ())
    }}
}

/// The key. `in_call` is `false` in the function for `key_fn`. That function returns an error if a value of
/// the key is missing, even under `missing_key = "run"`.
pub(super) fn key(model: &Model<'_>, runtime: &TokenStream, in_call: bool) -> TokenStream {
    let pieces = model.key.iter().map(|piece| match piece {
        KeyPiece::Literal(text) => setting("literal", text),
        KeyPiece::Part { tokens, .. } => setting("part", tokens),
    });
    let Some(missing) = &model.options.missing_key else {
        return quote_spanned!(Span::mixed_site()=> #runtime::KeyBuilder::new() #(#pieces)*);
    };
    // These tokens have the location of the option `missing_key`, so that rustc reports an error there if no
    // value of the key can be missing.
    let end = match **missing {
        MissingKey::Run if in_call => quote_spanned!(beside(missing.span())=> .run_missing()),
        MissingKey::Run | MissingKey::Reject => quote_spanned!(beside(missing.span())=> .reject_missing()),
    };
    quote_spanned!(Span::mixed_site()=> #runtime::OptionalKey::new() #(#pieces)* #end)
}

fn fingerprint(model: &Model<'_>, runtime: &TokenStream) -> Option<TokenStream> {
    let Fingerprinted { tokens: places, .. } = model.fingerprint.as_ref()?;
    let span = beside(places.span());
    let runtime = runtime_path::shown_at(runtime, span);
    let fingerprint = quote_spanned!(span=> #runtime::fingerprint(#places));
    Some(quote_spanned! {Span::mixed_site()=>
        let __idem_operation = __idem_operation.with_fingerprint(#fingerprint);
    })
}

/// The user's code as a future. The unreachable `return` comes before the code and tells rustc the return
/// type, so that rustc reports errors where it would report them without the attribute. `async move` and its
/// braces have the span of the code, because otherwise borrow errors would not show the names in the code.
fn body(model: &Model<'_>) -> TokenStream {
    let code = model.function.code();
    let returns = model.returns;
    let typed = quote_spanned! {Span::mixed_site()=>
        if let ::core::option::Option::Some(__idem_never) = ::core::option::Option::None::<#returns> {
            return __idem_never;
        }
    };
    // The code keeps its own braces, so that rustc still warns about code after a `return`. If both braces
    // are on one line, they are left out, because rustc would report them as unused.
    let content = if is_on_one_line(code) { code.stream() } else { code.to_token_stream() };
    let recovered = model.recover.as_ref().map(recovered);
    let held = held(model);
    quote_spanned!(code.span()=> async move { #held #typed #recovered #content })
}

/// The code that runs before the user's code, if the option `recover` is set. rustc reports errors about the
/// call of the recover function at the path of that function.
fn recovered(recover: &Recover) -> TokenStream {
    let Recover { call, receiver, arguments } = recover;
    let span = beside(call.span());
    let reference = |argument: &Ident| {
        let mut named = argument.clone();
        named.set_span(argument.span().located_at(span));
        quote_spanned!(span=> &#named)
    };
    let receiver = receiver.iter().map(reference);
    let arguments = arguments.iter().map(reference);
    let call = match call {
        Expr::Closure(_) => quote_spanned!(span=> (#call)),
        call => call.to_token_stream(),
    };
    let arguments = quote_spanned!(span=> (#(#receiver,)* &__idem_recovery #(, #arguments)*));
    // The call and its `.await` have one location, because otherwise rustc would report an error twice.
    let answer = quote_spanned!(span=> __idem_codec.recover(#call #arguments).await);
    quote_spanned! {Span::mixed_site()=>
        match __idem_codec.begin_recovery().await {
            ::core::result::Result::Ok(::core::option::Option::None) => {}
            ::core::result::Result::Ok(::core::option::Option::Some(__idem_recovery)) => {
                let __idem_recovered = #answer;
                if let ::core::option::Option::Some(__idem_result) = __idem_recovered {
                    return __idem_result;
                }
            }
            ::core::result::Result::Err(__idem_result) => return __idem_result,
        }
    }
}

fn is_on_one_line(code: &Group) -> bool {
    // Only rustc knows the lines of a token, and the unit tests of this crate run without rustc.
    proc_macro::is_available() && {
        let braces = code.span().unwrap();
        braces.start().line() == braces.end().line()
    }
}
