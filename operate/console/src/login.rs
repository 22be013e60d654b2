//! A login by a token, around a console: the sessions, their cookie, and which requests are refused before
//! the login.
//!
//! Owns the rules of `idem console`. Every page except the login form requires a session, even on a loopback
//! address, because other users and programs of the machine can connect to that address, too. With
//! [`Login::local`], a request through a proxy is refused, because every sender would seem to be local.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Form, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use idem_operate_kit::text::random_hex;
use maud::html;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::guard::{host, is_own, secured, text};
use crate::operator::Operator;
use crate::page::{bare, outside};
use crate::routes;
use crate::service::Console;

const COOKIE: &str = "idem_console";
/// A session ends after this time without a request.
const IDLE: Duration = Duration::from_secs(2 * 3_600);
/// A session ends after this time even if it is used.
const LONGEST: Duration = Duration::from_secs(12 * 3_600);
/// The limit of sessions. At the limit, a new session evicts the session that was unused for the longest
/// time.
const SESSIONS: usize = 64;
/// How long the check of a wrong token takes, to slow down guessing.
const PAUSE: Duration = Duration::from_millis(500);
/// The headers that a proxy adds to a request.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// A login by a token, for a console in an app without its own login. `/metrics` also accepts the token in
/// `Authorization: Bearer TOKEN`.
pub struct Login {
    /// The digest of the token. The time to compare digests reveals nothing about the token.
    token: [u8; 32],
    is_local: bool,
    origin: Option<String>,
    sessions: Mutex<HashMap<String, Session>>,
}

struct Session {
    name: String,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn lives(&self) -> bool {
        self.used.elapsed() < IDLE && self.begun.elapsed() < LONGEST
    }
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    token: String,
}

impl Login {
    /// A new random token.
    #[must_use]
    pub fn random_token() -> String {
        random_hex()
    }

    /// A login with this token.
    #[must_use]
    pub fn new(token: &str) -> Self {
        let token = Sha256::digest(token.trim()).into();
        Self { token, is_local: false, origin: None, sessions: Mutex::default() }
    }

    /// Refuses a request if it came through a proxy, or if its host is not `localhost`, `127.0.0.1` or
    /// `[::1]`. Use this method if the console listens on a loopback address without a proxy in front.
    #[must_use]
    pub const fn local(mut self) -> Self {
        self.is_local = true;
        self
    }

    /// The origin that browsers see behind a proxy, such as `https://idem.example`. With `https`, the cookie
    /// is `Secure`.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// The console behind this login, at the root of its host.
    pub fn protect(self, console: Console) -> Router {
        let console = match &self.origin {
            Some(origin) => console.origin(origin.clone()),
            None => console,
        };
        let login = Arc::new(self);
        Router::new()
            .route("/login", get(form).post(sign_in))
            .route("/logout", post(sign_out))
            .route("/style.css", get(routes::style))
            .fallback_service(console.router())
            .layer(from_fn_with_state(login.clone(), admit))
            .with_state(login)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_token(&self, token: &str) -> bool {
        <[u8; 32]>::from(Sha256::digest(token.trim())) == self.token
    }

    /// Starts a session, and returns its id.
    fn begin(&self, name: String) -> String {
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.lives());
        if sessions.len() >= SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| sessions.remove(&id));
        }
        let (id, now) = (random_hex(), Instant::now());
        sessions.insert(id.clone(), Session { name, begun: now, used: now });
        id
    }

    /// The person whose session this request belongs to.
    fn person(&self, headers: &HeaderMap) -> Option<String> {
        let mut sessions = self.lock();
        let session = sessions.get_mut(&session_of(headers)?).filter(|session| session.lives())?;
        session.used = Instant::now();
        Some(session.name.clone())
    }

    /// The operator who sent the request. Prometheus has no session, so `/metrics` also accepts the token.
    fn operator(&self, request: &Request) -> Option<Operator> {
        if let Some(name) = self.person(request.headers()) {
            return Some(Operator { name, signs_out: true });
        }
        let bearer = text(request.headers(), header::AUTHORIZATION)?.strip_prefix("Bearer ")?;
        (request.uri().path() == "/metrics" && self.is_token(bearer)).then(|| Operator::new("metrics"))
    }

    /// The reason to refuse the request before its sender is known; `None` to accept it.
    fn refusal(&self, request: &Request) -> Option<&'static str> {
        let headers = request.headers();
        if self.is_local && !is_this_machine(host(request)) {
            return Some("This console answers to localhost, 127.0.0.1 and [::1] only.");
        }
        if self.is_local && FORWARDED.iter().any(|name| headers.contains_key(*name)) {
            return Some(
                "This came through a proxy. To put the console behind one, start it with --public-url and --token-file.",
            );
        }
        (!is_own(request, self.origin.as_deref())).then_some("This was not sent from a page of this console.")
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, id)| id.to_owned()).next()
}

fn is_this_machine(host: &str) -> bool {
    let is_local = |host: Authority| matches!(host.host(), "localhost" | "127.0.0.1" | "[::1]");
    host.parse().is_ok_and(is_local)
}

async fn admit(State(login): State<Arc<Login>>, mut request: Request, next: Next) -> Response {
    if let Some(why) = login.refusal(&request) {
        return secured(bare(StatusCode::FORBIDDEN, "Refused", why));
    }
    let path = request.uri().path();
    if matches!(path, "/login" | "/style.css") {
        return secured(next.run(request).await);
    }
    if let Some(operator) = login.operator(&request) {
        request.extensions_mut().insert(operator);
        return secured(next.run(request).await);
    }
    secured(match request.method().is_safe() && path != "/metrics" {
        true => Redirect::to("login").into_response(),
        false => bare(StatusCode::UNAUTHORIZED, "Refused", "Sign in first."),
    })
}

async fn form() -> Response {
    let body = html! {
        form.deed action="login" method="post" {
            label for="name" { "Your name, for the audit trail" }
            input #name name="name" required maxlength="100" autocomplete="username";
            label for="token" { "Token" }
            input #token name="token" type="password" required autocomplete="current-password";
            button { "Sign in" }
        }
    };
    outside(StatusCode::OK, "Sign in", &body)
}

async fn sign_in(State(login): State<Arc<Login>>, Form(sent): Form<Credentials>) -> Response {
    if !login.is_token(&sent.token) || sent.name.trim().is_empty() {
        tokio::time::sleep(PAUSE).await;
        return bare(StatusCode::UNAUTHORIZED, "Refused", "The token is wrong, or the name is missing.");
    }
    let id = login.begin(Operator::new(sent.name.trim()).name);
    let is_tls = login.origin.as_ref().is_some_and(|origin| origin.starts_with("https://"));
    let secure = if is_tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={id}; HttpOnly; SameSite=Strict; Path=/{secure}");
    ([(header::SET_COOKIE, cookie)], Redirect::to("./")).into_response()
}

async fn sign_out(State(login): State<Arc<Login>>, headers: HeaderMap) -> Response {
    if let Some(id) = session_of(&headers) {
        login.lock().remove(&id);
    }
    Redirect::to("login").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("{COOKIE}={id}").parse().unwrap());
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_and_after_half_a_day_in_any_case() {
        let login = Login::new("0123456789abcdef");
        let idle = with(&login.begin("mara".to_owned()));
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        assert_eq!(login.person(&idle).as_deref(), Some("mara"));
        tokio::time::advance(IDLE).await;
        assert_eq!(login.person(&idle), None);
        let busy = with(&login.begin("mara".to_owned()));
        let half = IDLE / 2;
        for _ in 1..LONGEST.as_secs() / half.as_secs() {
            tokio::time::advance(half).await;
            assert!(login.person(&busy).is_some());
        }
        tokio::time::advance(half).await;
        assert_eq!(login.person(&busy), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_too_many_ends_the_one_that_was_not_used_for_the_longest_time() {
        let login = Login::new("0123456789abcdef");
        let first = with(&login.begin("mara".to_owned()));
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..SESSIONS {
            login.begin("ada".to_owned());
        }
        assert!(login.person(&first).is_none() && login.lock().len() == SESSIONS);
    }
}
