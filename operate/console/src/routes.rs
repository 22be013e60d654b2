//! The routes of the console. `guard` has let the request pass, so it has an operator.

use std::sync::Arc;

use axum::extract::{Form, FromRequest, Query as Parameters, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use idem_core::{Key, RecordKey, Store as _};
use idem_operate_kit::act::{self, Shown, absent, changed};
use idem_operate_kit::audit::{Deed, Trail};
use idem_operate_kit::evidence::{self, Form as Encoding};
use idem_operate_kit::find;
use idem_operate_kit::{Error, Kind, Result, prometheus, result, text, walk};
use maud::html;
use serde::Deserialize;

use crate::app::App;
use crate::guard;
use crate::look::{Findings, Query};
use crate::operator::Operator;
use crate::overview::{self, Filter};
use crate::page::{Failed, STYLE, message, page};
use crate::record::{self, Sent, Whole};
use crate::walks::still_looking;

type Shared = State<Arc<App>>;
type Handled = std::result::Result<Response, Failed>;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/list", post(list))
        .route("/record", get(one))
        .route("/find", post(search))
        .route("/reveal", post(reveal))
        .route("/confirm", post(confirm))
        .route("/settle", post(settle))
        .route("/audit", get(trail))
        .route("/metrics", get(metrics))
        .route("/style.css", get(style))
        .fallback(async |State(app): Shared, Extension(operator): Extension<Operator>| {
            message(&app, &operator, StatusCode::NOT_FOUND, "Not found", "There is no such page.")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

async fn metrics(State(app): Shared) -> Response {
    match app.walks.get(&Query::Overview).await {
        Ok(Some((walk, _))) => {
            let Findings::Overview(look) = &*walk else { return StatusCode::NOT_FOUND.into_response() };
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, prometheus::text(&look.counted)).into_response()
        }
        // The first walk goes on, and a later scrape gets its figures.
        Ok(None) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

async fn home(
    State(app): Shared,
    Extension(operator): Extension<Operator>,
    Parameters(filter): Parameters<Filter>,
) -> Handled {
    records(&app, &operator, &filter).await
}

/// As [`home`], with a key prefix, which is private and must not be part of an address.
async fn list(
    State(app): Shared,
    Extension(operator): Extension<Operator>,
    Form(filter): Form<Filter>,
) -> Handled {
    records(&app, &operator, &filter).await
}

async fn records(app: &App, operator: &Operator, filter: &Filter) -> Handled {
    let query = filter.query(&app.access).await?;
    let some = match &query {
        None => None,
        Some(query) => Some(app.walks.get(query).await?.ok_or_else(still_looking)?),
    };
    let Some((walk, age)) = app.walks.get(&Query::Overview).await? else {
        return Ok(page(app, operator, "Records", &overview::first()));
    };
    let Findings::Overview(look) = &*walk else { return Err(still_looking().into()) };
    let listed = match some.as_ref().map(|(walk, _)| &**walk) {
        Some(Findings::Records(records)) => records,
        _ => &look.open,
    };
    Ok(page(app, operator, "Records", &overview::overview(&look.counted, age, listed, filter)))
}

async fn trail(State(app): Shared, Extension(operator): Extension<Operator>) -> Handled {
    let walk = app.walks.get(&Query::Trail).await?;
    let body = match walk.as_ref().map(|(walk, _)| &**walk) {
        None => overview::first(),
        Some(Findings::Trail(entries)) => overview::trail(entries),
        Some(_) => return Err(still_looking().into()),
    };
    Ok(page(&app, &operator, "Audit trail", &body))
}

#[derive(Deserialize)]
struct Named {
    scope: String,
    digest: String,
}

/// The stored name of the record with this digest in this scope: several operations may have a record with one digest.
async fn named(app: &App, scope: &str, digest: &str) -> Result<RecordKey> {
    let scope = find::scope(scope)?;
    if scope.is_reserved() {
        return Err(Error::new(Kind::Refused, "the console shows and changes none of idem's own records"));
    }
    match app.walks.named(scope, digest).await? {
        Some(key) => Ok(key),
        None => Err(evidence::absent(&app.access).await),
    }
}

/// How the results of the record's operation are kept. `None` while the walk that shows it is under way.
async fn encoding(app: &App, key: &RecordKey, of: &idem_core::protocol::Record) -> Result<Option<Encoding>> {
    let walk = app.walks.get(&Query::Form(key.scope().clone())).await?;
    Ok(walk.and_then(|(walk, _)| match &*walk {
        Findings::Form(form) => Some(evidence::with_steps(*form, of)),
        _ => None,
    }))
}

async fn whole<'k>(app: &App, key: &'k RecordKey, is_open: bool) -> Result<Whole<'k>> {
    let store = evidence::readable(&app.access.store);
    let record = store.get(key).await?.ok_or_else(absent)?;
    let now = walk::now(&app.access.store).await?;
    // Another record that cannot be read does not close this page. Where a result is recorded, it is reported.
    let form = encoding(app, key, &record).await.ok().flatten().unwrap_or(Encoding::Unknown);
    Ok(Whole { key, record, now, form, is_open })
}

async fn one(
    State(app): Shared,
    Extension(operator): Extension<Operator>,
    Parameters(name): Parameters<Named>,
) -> Handled {
    let key = named(&app, &name.scope, &name.digest).await?;
    let body = record::record(&app, &operator, whole(&app, &key, false).await?);
    Ok(page(&app, &operator, "Record", &body))
}

#[derive(Deserialize)]
struct Question {
    q: String,
}

/// The records of this key in the operations that the last walk has seen: reads instead of a walk.
async fn by_key(app: &App, text: &str) -> Result<Vec<RecordKey>> {
    let (Ok(key), Some((walk, _))) = (Key::new(text), app.walks.get(&Query::Overview).await?) else {
        return Ok(Vec::new());
    };
    let Findings::Overview(look) = &*walk else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for scope in look.counted.scopes.keys() {
        let name = RecordKey::new(find::scope(scope)?, key.clone());
        names.extend(find::by_name(&app.access, name).await?);
    }
    Ok(names)
}

async fn search(
    State(app): Shared,
    Extension(operator): Extension<Operator>,
    Form(question): Form<Question>,
) -> Handled {
    let text = question.q.trim();
    let mut names = by_key(&app, text).await?;
    if names.is_empty() {
        let query = Query::Find(None, text.to_owned());
        let (walk, _) = app.walks.get(&query).await?.ok_or_else(still_looking)?;
        names = walk.names().into_iter().cloned().collect();
    } else {
        app.walks.remember(&names.iter().collect::<Vec<_>>());
    }
    let address = |key: &RecordKey| overview::address(key.scope().as_str(), &key.digest().to_string());
    match names.as_slice() {
        [] => Err(evidence::absent(&app.access).await.into()),
        [one] => Ok(Redirect::to(&address(one)).into_response()),
        several => {
            let list = html! { ul { @for key in several {
                li { a href=(address(key)) { (key.digest()) " of " bdi { (text::safe(key.scope().as_str())) } } }
            } } };
            Ok(page(&app, &operator, "Several operations have this key", &list))
        }
    }
}

/// A form that was issued to this operator and comes for the first time. Any other is refused.
struct Issued {
    app: Arc<App>,
    operator: Operator,
    sent: Sent,
}

impl FromRequest<Arc<App>> for Issued {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> std::result::Result<Self, Response> {
        // `guard` has put it there.
        let Some(operator) = request.extensions().get::<Operator>().cloned() else {
            return Err(StatusCode::UNAUTHORIZED.into_response());
        };
        let Form(sent) =
            Form::<Sent>::from_request(request, app).await.map_err(IntoResponse::into_response)?;
        if app.forms.take(&operator.name, &sent.form) {
            return Ok(Self { app: app.clone(), operator, sent });
        }
        let why = "This form was sent before, or belongs to somebody else. Open the record again.";
        Err(message(app, &operator, StatusCode::FORBIDDEN, "Refused", why))
    }
}

/// Shows key and result. The trail notes who saw them.
async fn reveal(Issued { app, operator, sent }: Issued) -> Handled {
    let key = named(&app, &sent.scope, &sent.digest).await?;
    let trail = Trail { by: operator.name.clone(), reason: None };
    let deed = Deed::on(&key, "revealed", None);
    let whole = trail.around(&app.access.store, &deed, whole(&app, &key, true)).await?;
    Ok(page(&app, &operator, "Record", &record::record(&app, &operator, whole)))
}

/// The record of a form, if it is still as it was shown and may be settled like this.
async fn decidable(app: &App, sent: &Sent) -> Result<(RecordKey, Shown)> {
    if app.read_only {
        return Err(Error::new(Kind::Refused, "this console is read-only and changes nothing"));
    }
    let key = named(app, &sent.scope, &sent.digest).await?;
    let (shown, record) = act::look(&app.access, &key).await?.ok_or_else(absent)?;
    let Some(record) = record.filter(|record| sent.is_of(record)) else {
        return Err(changed(idem_core::protocol::State::from_word(shown.word())));
    };
    let decision = sent.decision()?;
    decision.check(shown)?;
    if decision.records() {
        let form = encoding(app, &key, &record).await?.ok_or_else(still_looking)?;
        result::check(form, !sent.status.is_empty(), &app.access, sent.is_said).await?;
    }
    Ok((key, shown))
}

async fn confirm(Issued { app, operator, sent }: Issued) -> Handled {
    let (key, shown) = decidable(&app, &sent).await?;
    let body = record::question(&app, &operator, &key, shown, &sent);
    Ok(page(&app, &operator, "This will happen", &body))
}

async fn settle(Issued { app, operator, sent }: Issued) -> Handled {
    let (key, shown) = decidable(&app, &sent).await?;
    let reason = Some(sent.reason.clone()).filter(|reason| !reason.is_empty());
    let trail = Trail { by: operator.name.clone(), reason };
    let settled = act::settle(&app.access, &trail, &key, shown, &sent.decision()?).await;
    app.walks.changed();
    settled?;
    let text = "The decision is recorded, and in the audit trail.";
    Ok(message(&app, &operator, StatusCode::OK, "Done", text))
}
