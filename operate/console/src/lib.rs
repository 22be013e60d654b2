//! A console for a store of idempotent calls: a tower service for an app's own router, behind the app's own
//! login.
//!
//! ```
//! # async fn example(store: idem_runtime::MemoryStore) {
//! use axum::extract::Request;
//! use axum::middleware::{self, Next};
//!
//! let console = idem_console::service(store);
//! let app: axum::Router = axum::Router::new().nest_service("/idem", console).layer(middleware::from_fn(
//!     async |mut request: Request, next: Next| {
//!         // Your login. It says who acts; without an operator every page is refused.
//!         request.extensions_mut().insert(idem_console::Operator::new("mara"));
//!         next.run(request).await
//!     },
//! ));
//! # let _ = app;
//! # }
//! ```
//!
//! Everyone whom your login accepts can read and settle every record, so accept only operators. Links are
//! relative, so the console works under any path. If a proxy rewrites `Host`, pass the address that browsers
//! use to [`Console::origin`].
//!
//! [`Login`] is a login by a token, for apps without their own login. `idem console` uses it.
//!
//! # What it costs
//!
//! Pages that list or count walk through the store. Only one walk runs at a time, in a separate task, and
//! serves all requests that need it. A page waits at most 5 seconds for each walk that it needs, and then
//! shows the last figures and their age. `/metrics` returns the same figures for Prometheus. The service must
//! run in a tokio runtime.

mod app;
mod forms;
mod guard;
mod login;
mod look;
mod operator;
mod overview;
mod page;
mod record;
mod routes;
mod service;
mod walks;

pub use self::login::Login;
pub use self::operator::Operator;
pub use self::service::{Console, service};
