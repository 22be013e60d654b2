//! `idem console`: a page for a browser, served by the command.
//!
//! Owns the routes. `guard` decides who may do what; `page`, `overview` and `record` write HTML; `look` reads the store. The console
//! works without JavaScript, and loads nothing from elsewhere.

mod app;
mod guard;
mod look;
mod overview;
mod page;
mod record;
mod sessions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use clap::Args;
use idem_core::protocol::Seen;
use idem_core::{Key, RecordKey, Store as _};
use maud::html;
use serde::Deserialize;

use self::app::{App, digest};
use self::guard::{COOKIE, signed};
use self::look::{Look, Looks};
use self::overview::Shown;
use self::page::{Signed, message, page, trouble};
use self::record::{Deed, Seeing};
use self::sessions::Sessions;
use super::access::Access;
use super::audit::{self, Trail};
use super::end::{Answer, End, Trouble};
use super::evidence;
use super::output::Output;
use super::prometheus;
use super::settle::{changed, settle};
use super::target;
use super::walk;
use super::word;

/// The shortest token, in bytes: a shorter one could be guessed.
const SHORTEST_TOKEN: usize = 16;

#[derive(Args)]
pub(crate) struct Console {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:7878", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// A file with the token to sign in with; needed if other machines can reach the address. Otherwise the console makes
    /// a token and prints it
    #[arg(long, env = "IDEM_CONSOLE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Show records, and change nothing
    #[arg(long)]
    read_only: bool,
}

impl Console {
    /// The token, and whether it was made here.
    fn token(&self) -> Answer<(String, bool)> {
        let wrong = |text: String| Trouble::new(End::Usage, text);
        let Some(file) = &self.token_file else {
            if !self.listen.ip().is_loopback() {
                return Err(wrong("other machines can reach this address: give `--token-file`".to_owned()));
            }
            return Ok((sessions::random(), true));
        };
        let token = std::fs::read_to_string(file)
            .map_err(|error| wrong(format!("cannot read {}: {error}", file.display())))?;
        let token = token.trim().to_owned();
        if token.len() < SHORTEST_TOKEN {
            return Err(wrong(format!(
                "the token must have at least {SHORTEST_TOKEN} bytes, better 32 random ones"
            )));
        }
        Ok((token, false))
    }
}

pub(crate) async fn run(console: &Console, access: Access, costly: bool, output: &mut Output) -> Answer {
    let (token, is_made_up) = console.token()?;
    let cannot = |error: std::io::Error| {
        Trouble::new(End::Unusable, format!("cannot listen on {}: {error}", console.listen))
    };
    let listener = tokio::net::TcpListener::bind(console.listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    output.line(format!("console at http://{address}/"))?;
    if is_made_up {
        output.line(format!("token to sign in, until this process ends: {token}"))?;
    }
    output.flush()?;
    let app = App {
        access,
        looks: Looks::new(costly),
        sessions: Sessions::default(),
        token: digest(&token),
        is_local: console.listen.ip().is_loopback(),
        read_only: console.read_only,
    };
    axum::serve(listener, router(Arc::new(app))).await.map_err(cannot)?;
    Ok(End::Done)
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/record", get(one))
        .route("/find", post(find))
        .route("/reveal", post(reveal))
        .route("/confirm", post(confirm))
        .route("/settle", post(carry_out))
        .route("/audit", get(trail))
        .route("/login", get(login_page).post(login))
        .route("/logout", post(logout))
        .route("/metrics", get(metrics))
        .route("/style.css", get(style))
        .fallback(async |State(app): State<Arc<App>>, headers: HeaderMap| {
            let signed = signed(&app, &headers);
            message(&app, signed.as_ref(), StatusCode::NOT_FOUND, "Not found", "There is no such page.")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("style.css")).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    match app.looks.get(&app.access).await {
        Ok(look) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, prometheus::text(&look.counted)).into_response()
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

async fn home(State(app): State<Arc<App>>, headers: HeaderMap, Query(shown): Query<Shown>) -> Response {
    let signed = signed(&app, &headers);
    let seen = async {
        let look = app.looks.get(&app.access).await?;
        let some = match shown.filter()? {
            (None, None) => None,
            (scope, state) => Some(Look::some(&app.access, scope, state).await?),
        };
        let listed = some.as_deref().unwrap_or(&look.open);
        Answer::Ok(overview::overview(&look, listed, &shown))
    };
    match seen.await {
        Ok(body) => page(&app, signed.as_ref(), "Records", &body),
        Err(error) => trouble(&app, signed.as_ref(), &error),
    }
}

async fn trail(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let signed = signed(&app, &headers);
    match audit::entries(&app.access, None).await {
        Ok(mut entries) => {
            entries.truncate(look::ROWS);
            page(&app, signed.as_ref(), "Audit trail", &overview::trail(&entries))
        }
        Err(error) => trouble(&app, signed.as_ref(), &error),
    }
}

#[derive(Deserialize)]
struct Named {
    scope: String,
    digest: String,
}

/// The stored name of the record with this digest in this scope: several operations may have a record with one digest.
async fn named(app: &App, named: &Named) -> Answer<RecordKey> {
    let scope = target::scope(&named.scope)?;
    let found = target::look_for(&app.access, Some(scope), None, Some(named.digest.as_str())).await?;
    found.into_iter().next().ok_or_else(crate::settle::absent)
}

async fn seeing<'k>(app: &App, key: &'k RecordKey, is_open: bool) -> Answer<Seeing<'k>> {
    let store = evidence::readable(&app.access.store);
    let record = store.get(key).await?.ok_or_else(crate::settle::absent)?;
    let now = walk::now(&app.access.store).await?;
    let form = evidence::form(&app.access, key, &record).await?;
    Ok(Seeing { key, record, now, form, is_open })
}

async fn shown(app: &App, signed: Option<&Signed>, name: &Named, is_open: bool) -> Answer<Response> {
    let key = named(app, name).await?;
    let body = record::record(app, signed, seeing(app, &key, is_open).await?);
    Ok(page(app, signed, "Record", &body))
}

async fn one(State(app): State<Arc<App>>, headers: HeaderMap, Query(name): Query<Named>) -> Response {
    let signed = signed(&app, &headers);
    let shown = shown(&app, signed.as_ref(), &name, false).await;
    shown.unwrap_or_else(|error| trouble(&app, signed.as_ref(), &error))
}

#[derive(Deserialize)]
struct Question {
    q: String,
}

async fn find(State(app): State<Arc<App>>, headers: HeaderMap, Form(asked): Form<Question>) -> Response {
    let signed = signed(&app, &headers);
    let found = async {
        let text = asked.q.trim();
        let mut found =
            target::look_for(&app.access, None, None, Some(text.to_ascii_lowercase().as_str())).await?;
        if let (true, Ok(key)) = (found.is_empty(), Key::new(text)) {
            found = target::look_for(&app.access, None, Some(&key), None).await?;
        }
        Answer::Ok(found)
    };
    let found = match found.await {
        Ok(found) => found,
        Err(error) => return trouble(&app, signed.as_ref(), &error),
    };
    let address = |key: &RecordKey| overview::address(key.scope().as_str(), &key.digest().to_string());
    match found.as_slice() {
        [] => trouble(&app, signed.as_ref(), &crate::settle::absent()),
        [one] => Redirect::to(&address(one)).into_response(),
        several => {
            let list = html! { ul { @for key in several { li { a href=(address(key)) { (key.digest()) " of " bdi { (super::output::safe(key.scope().as_str())) } } } } } };
            page(&app, signed.as_ref(), "Several operations have this key", &list)
        }
    }
}

/// The signed-in person, if this form was issued to their session and is sent for the first time.
fn authorised(app: &App, headers: &HeaderMap, form: &str) -> Result<Signed, Box<Response>> {
    let refused = |why: &str| Box::new(message(app, None, StatusCode::FORBIDDEN, "Refused", why));
    let signed = signed(app, headers).ok_or_else(|| refused("Sign in first."))?;
    if !app.sessions.take(&signed.id, form) {
        return Err(refused(
            "This form was sent before, or belongs to another session. Open the record again.",
        ));
    }
    Ok(signed)
}

async fn reveal(State(app): State<Arc<App>>, headers: HeaderMap, Form(deed): Form<Deed>) -> Response {
    let signed = match authorised(&app, &headers, &deed.form) {
        Ok(signed) => signed,
        Err(refused) => return *refused,
    };
    let name = Named { scope: deed.scope, digest: deed.digest };
    let shown = shown(&app, Some(&signed), &name, true).await;
    shown.unwrap_or_else(|error| trouble(&app, Some(&signed), &error))
}

/// The record of a form, if it is still as it was shown and may be settled like this.
async fn judged(app: &App, deed: &Deed) -> Answer<(RecordKey, Seen)> {
    if app.read_only {
        return Err(Trouble::new(End::Refused, "this console runs with `--read-only` and changes nothing"));
    }
    let name = Named { scope: deed.scope.clone(), digest: deed.digest.clone() };
    let key = named(app, &name).await?;
    let record = app.access.store.get(&key).await?.ok_or_else(crate::settle::absent)?;
    let seen = Seen::of(&record);
    if !deed.is_of(seen) {
        return Err(changed(Some(seen.state)));
    }
    if deed.resolution(seen)?.recorded().is_some() {
        let form = evidence::form(&app.access, &key, &record).await?;
        word::check(form, !deed.status.is_empty(), &app.access, deed.is_said)?;
    }
    Ok((key, seen))
}

async fn confirm(State(app): State<Arc<App>>, headers: HeaderMap, Form(deed): Form<Deed>) -> Response {
    let signed = match authorised(&app, &headers, &deed.form) {
        Ok(signed) => signed,
        Err(refused) => return *refused,
    };
    match judged(&app, &deed).await {
        Ok((key, seen)) => {
            let body = record::question(&app, &signed, &key, seen, &deed);
            page(&app, Some(&signed), "This will happen", &body)
        }
        Err(error) => trouble(&app, Some(&signed), &error),
    }
}

async fn carry_out(State(app): State<Arc<App>>, headers: HeaderMap, Form(deed): Form<Deed>) -> Response {
    let signed = match authorised(&app, &headers, &deed.form) {
        Ok(signed) => signed,
        Err(refused) => return *refused,
    };
    let reason = Some(deed.reason.clone()).filter(|reason| !reason.is_empty());
    let done = async {
        let (key, seen) = judged(&app, &deed).await?;
        let trail = Trail::new(signed.name.clone(), reason);
        settle(&app.access, &trail, &key, seen, deed.resolution(seen)?).await
    };
    let done = done.await;
    app.looks.forget().await;
    match done {
        Ok(()) => message(
            &app,
            Some(&signed),
            StatusCode::OK,
            "Done",
            "The decision is recorded, and in the audit trail.",
        ),
        Err(error) => trouble(&app, Some(&signed), &error),
    }
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    token: String,
}

async fn login_page(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let signed = signed(&app, &headers);
    let body = html! {
        form.deed action="/login" method="post" {
            label for="name" { "Your name, for the audit trail" }
            input #name name="name" required maxlength="100" autocomplete="username";
            label for="token" { "Token" }
            input #token name="token" type="password" required autocomplete="current-password";
            button { "Sign in" }
        }
    };
    page(&app, signed.as_ref(), "Sign in", &body)
}

async fn login(State(app): State<Arc<App>>, Form(said): Form<Credentials>) -> Response {
    if !app.is_token(&said.token) || said.name.trim().is_empty() {
        // Slows down guessing.
        tokio::time::sleep(Duration::from_millis(500)).await;
        return message(
            &app,
            None,
            StatusCode::UNAUTHORIZED,
            "Refused",
            "The token is wrong, or the name is missing.",
        );
    }
    let id = app.sessions.begin(super::output::safe(said.name.trim()));
    let cookie = format!("{COOKIE}={id}; HttpOnly; SameSite=Strict; Path=/");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

async fn logout(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if let Some(signed) = signed(&app, &headers) {
        app.sessions.end(&signed.id);
    }
    Redirect::to("/").into_response()
}
