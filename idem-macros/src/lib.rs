//! The attributes and the derive of `idem`: entry points only.
//!
//! Each entry point calls a function that takes and returns `proc_macro2` token streams, so unit tests call
//! it without a compiler. Nothing of this crate is in a user's program: the generated code calls
//! `idem-runtime`.

// Only tests, examples and benches may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod attribute;
mod diagnostics;
mod duration;
mod idempotent_test;
mod key;
mod key_part;
mod limits;
mod runtime_path;
mod source;

use proc_macro::TokenStream;

/// Makes an async function safe to call again: its first result is recorded under a key made of its
/// arguments, and every duplicate call gets that result.
///
/// ```ignore
/// #[idempotent(key = "order/{order.id}", ttl = "24h", store = app.store)]
/// async fn charge(app: &App, order: &Order) -> Result<Receipt, ChargeError> {
///     app.gateway.charge(order.amount).await
/// }
/// ```
///
/// | option | meaning | default |
/// |---|---|---|
/// | `key = "order/{order.id}"` | what tells one call from another: a template with places in braces, one place, or an expression; a place is an argument, or a field or method of it, such as `order.id` | required |
/// | `store = app.store` | a `Store`, something that derefs to a `Store` (a reference, `Arc`, `Box` or `LazyLock`), or a `OnceLock` of a `Store` | required |
/// | `ttl = "24h"` | how long the result is kept after completion: a text, or an expression of type `Duration` | 24h |
/// | `lease = "30s"` | how long a silent owner keeps its claim | 30s |
/// | `scope = "payments.charge"` | the stable name of the operation; required for functions with type or const parameters or arguments of an `impl` type, for methods of generic types, and for associated functions without `self` | module path, the type `Self` of a method, function |
/// | `fingerprint = (order.amount, order.currency)` | what must not change under one key: an expression that serializes | none |
/// | `wait = "5s"` | how long to wait for the call in flight, instead of refusing | refuse |
/// | `terminal = ChargeError::is_final` | `fn(&E) -> bool`: errors to keep and replay | none |
/// | `on_crash = "rerun"` or `"in_doubt"` | what the next call does after a crash: it runs the body, or reports the doubt | `"rerun"` |
/// | `recover = path` | an async function that the engine calls before it runs the body again: if it returns `Ok(Some(value))`, that value is the result | none |
/// | `max_attempts = 5` | how often the body may be started | no limit |
/// | `timeout = "2m"` | how long one attempt may take; then its body is dropped, as in a crash | no limit |
/// | `retry_after = "1s..5m"` | when a key is due again after its body failed: a duration, a range to back off in, or `fn(&E, u32) -> Duration` | at once |
/// | `record_if = Receipt::is_final` | `fn(&T) -> bool`: if it returns `false` for an `Ok` value, that value is returned and not recorded | always |
/// | `store_timeout = "2s"` | how long one store operation may take | 10s |
/// | `key_fn = charge_key` | also makes the function `charge_key(..)`, which takes the same arguments and returns `Result<RecordKey, idem::Error>` | none |
/// | `fail_open` | run unprotected when the store is down | fail closed |
/// | `detach` | finish and record even when the caller goes away | runs in the caller's task |
/// | `missing_key = "reject"` or `"run"` | for a key with an `Option` in it: refuse a call without a value, or run its body unprotected | required for such a key |
/// | `transaction = tx` | the `&mut` argument that carries the caller's open PostgreSQL or MySQL transaction | none |
/// | `crate = ::path` | where the runtime is | `::idem` |
///
/// A duration is an integer with `ms`, `s`, `m`, `h`, `d` or `w`, or several of these: `"1h 30m"`.
#[proc_macro_attribute]
pub fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attribute::expand(attribute.into(), &item.into()).into()
}

/// Lets a struct or an enum be part of a key.
///
/// The fields of a struct are rendered in order, so that different values have different renderings. A
/// variant is rendered as its name, or as the text in `#[key_part(rename = "..")]`, followed by its data in
/// order. `#[key_part(crate = ::path)]` on the type sets the path to the runtime.
///
/// ```ignore
/// #[derive(KeyPart)]
/// struct Sku { warehouse: u16, item: String }
/// ```
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(item: TokenStream) -> TokenStream {
    key_part::derive(item.into()).into()
}

/// Turns an async function that takes a `Trial` into a test. The test runs the function once without an
/// injury, and then once for each point and each injury that is possible there. The points are the operations
/// on the trial's store (`TrialStore` says which) and the awaits of the trial's calls. The injuries are a
/// crash before or after the point, a lost answer, a lost lease, a duplicate, and a dropped caller. The
/// assertions of the function must hold in each run. If the test fails, it lists the injuries under which the
/// function failed. The test also fails if no call uses the store of the trial, or if a run does not reach
/// the point of its injury. The test runs with paused time.
///
/// ```ignore
/// use idem::testing::{Trial, idempotent_test};
///
/// #[idempotent_test]
/// async fn a_card_is_charged_once(trial: Trial) {
///     let shop = Shop::new(trial.store());
///     let receipt = trial.call(|| charge(&shop, 42)).await;
///     assert_eq!(receipt.cents, 1999);
///     assert_eq!(shop.gateway.charges(), 1);
/// }
/// ```
///
/// `#[idempotent_test(crate = ::path)]` sets the path of the testing tools, which is `::idem::testing` unless
/// set.
#[proc_macro_attribute]
pub fn idempotent_test(attribute: TokenStream, item: TokenStream) -> TokenStream {
    idempotent_test::expand(attribute.into(), &item.into()).into()
}
