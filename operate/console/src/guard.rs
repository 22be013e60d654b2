//! Decides who may do what. Every request comes here before it reaches a page.
//!
//! Owns the access rules. Every page requires an operator, whom a login has put into the request. Another
//! site can link to a page, but cannot load a page or send a form. Every response gets the security headers,
//! and an error becomes a page.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use idem_operate_kit::Error;

use crate::app::App;
use crate::operator::Operator;
use crate::page::{Visit, bare};

const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer`, a browser would send a form with the origin `null`, which `is_own` refuses.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(crate) fn secured(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

pub(crate) fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The host that the browser requested. Over HTTP/2 the host is part of the URI.
pub(crate) fn host(request: &Request) -> &str {
    let authority = || request.uri().authority().map(Authority::as_str);
    text(request.headers(), header::HOST).or_else(authority).unwrap_or_default()
}

/// Whether the request comes from a page of this console or from the person. A page of another site may only
/// link to the console: if the browser sends `Sec-Fetch-Site`, all other requests must have the value
/// `same-origin` or `none`. A form must also have the console's own `Origin`.
pub(crate) fn is_own(request: &Request, own: Option<&str>) -> bool {
    let (method, headers) = (request.method(), request.headers());
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let is_link = is_read && text(headers, "sec-fetch-mode") == Some("navigate");
    let site = text(headers, "sec-fetch-site");
    if !is_link && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return false;
    }
    let origin = text(headers, header::ORIGIN);
    let host = host(request);
    is_read
        || origin.is_some_and(|origin| match own {
            Some(own) => origin == own.trim_end_matches('/'),
            None => origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) == Some(host),
        })
}

pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let refusal = |status, why| bare(status, "Refused", why);
    let is_open = request.uri().path() == "/style.css";
    let operator = request.extensions().get::<Operator>().cloned();
    let response = if !is_own(&request, app.origin.as_deref()) {
        refusal(StatusCode::FORBIDDEN, "This was not sent from a page of this console.")
    } else if !is_open && operator.is_none() {
        refusal(StatusCode::UNAUTHORIZED, "Sign in first.")
    } else if let Some(slashed) = without_slash(&request) {
        slashed
    } else {
        next.run(request).await
    };
    let error = response.extensions().get::<Error>().cloned();
    secured(match (operator, error) {
        (Some(operator), Some(error)) => Visit { app, operator }.trouble(&error),
        _ => response,
    })
}

/// Redirects a request for the first page to a path with a slash at its end, if the request's path has none.
/// The links of the page are relative: at `/idem` they would lead out of the console, at `/idem/` they do
/// not.
fn without_slash(request: &Request) -> Option<Response> {
    let original = request.extensions().get::<axum::extract::OriginalUri>()?;
    let path = original.0.path();
    if request.uri().path() != "/" || path.ends_with('/') {
        return None;
    }
    let name = path.rsplit('/').next()?;
    let query = original.0.query().map_or_else(String::new, |query| format!("?{query}"));
    Some(Redirect::to(&format!("{name}/{query}")).into_response())
}
