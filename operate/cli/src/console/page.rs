//! The frame of every page: head, navigation, messages.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::app::App;
use crate::end::{End, Trouble};

/// A signed-in person.
pub(super) struct Signed {
    pub(super) id: String,
    pub(super) name: String,
}

/// A whole page.
pub(super) fn page(app: &App, signed: Option<&Signed>, title: &str, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " - idem" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    nav aria-label="Pages" {
                        a.home href="/" { "idem" }
                        a href="/" { "Records" }
                        a href="/audit" { "Audit trail" }
                    }
                    // A POST, because a key is private and a browser keeps addresses in its history.
                    form.search action="/find" method="post" role="search" {
                        label for="q" { "Key or digest" }
                        input #q name="q" required autocomplete="off" spellcheck="false" maxlength="1024";
                        button { "Find" }
                    }
                    (who(app, signed))
                }
                main #main tabindex="-1" {
                    h1 { (title) }
                    (body)
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}

fn who(app: &App, signed: Option<&Signed>) -> Markup {
    html! {
        div.who {
            @if app.read_only { span.tag { "read-only" } }
            @match signed {
                Some(signed) => {
                    form action="/logout" method="post" {
                        span { bdi { (signed.name) } }
                        button { "Sign out" }
                    }
                }
                None => a href="/login" { "Sign in" },
            }
        }
    }
}

/// A page with one message.
pub(super) fn message(
    app: &App,
    signed: Option<&Signed>,
    status: StatusCode,
    title: &str,
    text: &str,
) -> Response {
    let mut response = page(
        app,
        signed,
        title,
        &html! { p role="status" { (text) } p { a href="/" { "Back to the records" } } },
    );
    *response.status_mut() = status;
    response
}

/// An error as a page.
pub(super) fn trouble(app: &App, signed: Option<&Signed>, trouble: &Trouble) -> Response {
    let (status, text) = match trouble {
        Trouble::Said(end, text) => (
            match end {
                End::Nothing => StatusCode::NOT_FOUND,
                End::Usage => StatusCode::UNPROCESSABLE_ENTITY,
                End::Refused => StatusCode::CONFLICT,
                End::Unreachable => StatusCode::BAD_GATEWAY,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            text.as_str(),
        ),
        Trouble::Output(_) => (StatusCode::INTERNAL_SERVER_ERROR, "it cannot be read or written"),
    };
    message(app, signed, status, "Not done", text)
}
