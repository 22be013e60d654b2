//! The frame of every page: head, navigation, messages. Links are relative, so that the console works under
//! any path.

use std::sync::Arc;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use idem_operate_kit::{Error, Kind};
use maud::{DOCTYPE, Markup, html};

use crate::app::App;
use crate::operator::Operator;

pub(crate) const STYLE: &str = include_str!("style.css");

/// A whole page. `bar` is the content of its header.
fn framed(title: &str, bar: &Markup, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " - idem" }
                link rel="stylesheet" href="style.css";
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header { (bar) }
                main #main tabindex="-1" {
                    h1 { (title) }
                    (body)
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}

/// A request of a signed-in person.
pub(crate) struct Visit {
    pub(crate) app: Arc<App>,
    pub(crate) operator: Operator,
}

impl FromRequestParts<Arc<App>> for Visit {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, StatusCode> {
        // `guard` answers a request without an operator, so this error does not occur.
        let operator = parts.extensions.get::<Operator>().cloned().ok_or(StatusCode::UNAUTHORIZED)?;
        Ok(Self { app: app.clone(), operator })
    }
}

impl Visit {
    pub(crate) fn page(&self, title: &str, body: &Markup) -> Response {
        let bar = html! {
            nav aria-label="Pages" {
                a.home href="./" { "idem" }
                a href="./" { "Records" }
                a href="audit" { "Audit trail" }
            }
            // The form uses POST, because a key is private, and a browser keeps URLs in its history.
            form.search action="find" method="post" role="search" {
                label for="q" { "Key or digest" }
                input #q name="q" required autocomplete="off" spellcheck="false" maxlength="1024";
                button { "Find" }
            }
            div.who {
                @if self.app.read_only { span.tag { "read-only" } }
                @if self.operator.signs_out {
                    form action="logout" method="post" {
                        span { bdi { (self.operator.name) } }
                        button { "Sign out" }
                    }
                } @else { span { bdi { (self.operator.name) } } }
            }
        };
        framed(title, &bar, body)
    }

    /// A page with one message.
    pub(crate) fn message(&self, status: StatusCode, title: &str, text: &str) -> Response {
        let body = html! { p role="status" { (text) } p { a href="./" { "Back to the records" } } };
        (status, self.page(title, &body)).into_response()
    }

    /// An error as a page.
    pub(crate) fn trouble(&self, error: &Error) -> Response {
        let status = match error.kind() {
            Kind::Absent => StatusCode::NOT_FOUND,
            Kind::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Refused | Kind::Unconfirmed => StatusCode::CONFLICT,
            Kind::Unreachable => StatusCode::BAD_GATEWAY,
            Kind::Unusable => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.message(status, "Not done", &error.to_string())
    }
}

/// A page for a person who is not signed in.
pub(crate) fn outside(status: StatusCode, title: &str, body: &Markup) -> Response {
    (status, framed(title, &html! { span.home { "idem" } }, body)).into_response()
}

/// A page for a person who is not signed in, with one message.
pub(crate) fn bare(status: StatusCode, title: &str, text: &str) -> Response {
    outside(status, title, &html! { p role="status" { (text) } })
}

/// An error as the response of a handler. `guard` turns it into a page for the operator of the request.
pub(crate) struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        Extension(self.0).into_response()
    }
}
