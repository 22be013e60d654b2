//! Decides who may do what: every request passes here before any page.
//!
//! Owns the rules. A console on a loopback address answers only to a loopback `Host`, which prevents DNS rebinding. A request that
//! changes something needs the console's own `Origin` and a session. Every response gets the security headers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::app::App;
use super::page::{Signed, message};

/// The name of the session's cookie.
pub(super) const COOKIE: &str = "idem_console";

const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With `no-referrer` a browser would send a form with the origin `null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&app, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn refusal(app: &App, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    let refused = |status: StatusCode, why: &str| Some(message(app, None, status, "Refused", why));
    if app.is_local && !is_this_machine(host) {
        return refused(
            StatusCode::FORBIDDEN,
            "This console answers to localhost, 127.0.0.1 and [::1] only.",
        );
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read {
        let own = [format!("http://{host}"), format!("https://{host}")];
        if !text(header::ORIGIN).is_some_and(|origin| own.iter().any(|own| own == origin)) {
            return refused(StatusCode::FORBIDDEN, "The form was not sent from a page of this console.");
        }
    }
    let path = request.uri().path();
    if matches!(path, "/login" | "/style.css") || signed(app, headers).is_some() {
        return None;
    }
    // A search only reads. It is a POST because a key must not be part of an address.
    let is_read = is_read || path == "/find";
    if is_read && (app.is_local || (path == "/metrics" && has_token(app, headers))) {
        return None;
    }
    match is_read && path != "/metrics" {
        true => Some(Redirect::to("/login").into_response()),
        false => refused(StatusCode::UNAUTHORIZED, "Sign in first."),
    }
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// Whether the request has the token as `Authorization: Bearer`, for Prometheus.
fn has_token(app: &App, headers: &HeaderMap) -> bool {
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    said.and_then(|said| said.strip_prefix("Bearer ")).is_some_and(|token| app.is_token(token))
}

/// The signed-in person who sent the request.
pub(super) fn signed(app: &App, headers: &HeaderMap) -> Option<Signed> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let id = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, id)| id).next()?;
    Some(Signed { id: id.to_owned(), name: app.sessions.name(id)? })
}
