//! The attribute and the derive of `idem`: entry points only.
//!
//! Everything behind them is a function from token stream to token stream, so that it can be tested
//! without a compiler. Nothing here runs in the user's program: what does is in `idem-runtime`.

// Code that panics or prints is for tests, examples and benches.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod attribute;
mod diagnostics;
mod duration;
mod key;
mod key_part;
mod runtime_path;

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
/// | `key = "order/{order.id}"` | what tells one call from another: a template of places in the arguments, one place, or an expression | required |
/// | `store = app.store` | a `Store`, or a reference, `Arc` or `Box` of one | required |
/// | `ttl = "24h"` | how long the result is kept; a literal, or an expression of type `Duration` | 24h |
/// | `lease = "30s"` | how long a silent owner keeps its claim | 30s |
/// | `scope = "payments.charge"` | the stable name of the operation | module path and function |
/// | `fingerprint = (order.amount, order.currency)` | what must not change under one key | none |
/// | `wait = "5s"` | wait for the call in flight instead of refusing | refuse |
/// | `terminal = ChargeError::is_final` | `fn(&E) -> bool`: errors to keep and replay | none |
/// | `on_crash = "rerun"` or `"in_doubt"` | what to do when a lease ran out without a result | `"rerun"` |
/// | `max_attempts = 5` | how often the body may be started | no limit |
/// | `max_result_bytes = 65_536` | how large a result may be | the store's limit |
/// | `fail_open` | run unprotected when the store is down | fail closed |
/// | `detach` | finish and record even when the caller goes away | runs in the caller's task |
/// | `missing_key = "reject"` or `"run"` | for a key with an `Option` in it: refuse a call without a value, or run its body unprotected | must be said |
/// | `transaction = tx` | the `&mut` argument that carries the caller's open PostgreSQL transaction | none |
/// | `crate = ::path` | where the runtime is | `::idem` |
///
/// Durations are integers with `ms`, `s`, `m`, `h`, `d` or `w`, or several: `"1h 30m"`.
#[proc_macro_attribute]
pub fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attribute::expand(attribute.into(), &item.into()).into()
}

/// Lets a struct or a fieldless enum be part of a key.
///
/// The fields of a struct are rendered in order, so that different values have different
/// renderings; a variant is rendered as its name, or as `#[key_part(rename = "..")]` says.
/// `#[key_part(crate = ::path)]` on the type says where the runtime is.
///
/// ```ignore
/// #[derive(KeyPart)]
/// struct Sku { warehouse: u16, item: String }
/// ```
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(item: TokenStream) -> TokenStream {
    key_part::derive(item.into()).into()
}
