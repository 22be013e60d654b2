//! The routes of the console. `guard` runs before them, so every request except one for `style.css` has an
//! operator.

use std::sync::Arc;

use axum::extract::{Form, FromRequest, FromRequestParts as _, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use idem_core::protocol::{Record, State as RecordState};
use idem_core::{Key, RecordKey, Store as _};
use idem_operate_kit::act::{self, absent, changed};
use idem_operate_kit::audit::{Deed, Trail};
use idem_operate_kit::evidence::{self, Form as Encoding};
use idem_operate_kit::find;
use idem_operate_kit::{Error, Kind, Result, prometheus, result, text, walk};
use maud::html;
use serde::Deserialize;

use crate::app::App;
use crate::forms::Issued;
use crate::guard;
use crate::look::Query;
use crate::overview::{self, Filter};
use crate::page::{Failed, STYLE, Visit};
use crate::record::{self, Sent, Whole};
use crate::walks::still_looking;

type Handled = std::result::Result<Response, Failed>;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(records))
        // This route has POST, because a key prefix is private and must not be part of a URL.
        .route("/list", post(records))
        .route("/record", get(one))
        .route("/find", post(search))
        .route("/reveal", post(reveal))
        .route("/confirm", post(confirm))
        .route("/settle", post(settle))
        .route("/audit", get(trail))
        .route("/metrics", get(metrics))
        .route("/style.css", get(style))
        .fallback(async |visit: Visit| {
            visit.message(StatusCode::NOT_FOUND, "Not found", "There is no such page.")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    match app.walks.get(&Query::Overview).await {
        Ok(Some((walk, _))) => {
            let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, prometheus::text(&walk.look.counted)).into_response()
        }
        // The first walk continues, and a later scrape gets its figures.
        Ok(None) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

async fn records(visit: Visit, Form(filter): Form<Filter>) -> Handled {
    let query = filter.query(&visit.app.access).await?;
    let some = match &query {
        None => None,
        Some(query) => Some(visit.app.walks.get(query).await?.ok_or_else(still_looking)?),
    };
    let Some(all) = visit.app.walks.get(&Query::Overview).await? else {
        return Ok(visit.page("Records", &overview::first()));
    };
    let (listed, _) = some.as_ref().unwrap_or(&all);
    Ok(visit.page("Records", &overview::overview(&all, &listed.look.open, &filter)))
}

async fn trail(visit: Visit) -> Handled {
    let walk = visit.app.walks.get(&Query::Trail).await?;
    let body = walk.map_or_else(overview::first, |(walk, _)| overview::trail(&walk.trail));
    Ok(visit.page("Audit trail", &body))
}

/// How the results of the record's operation are kept; `None` while the walk that finds this out still runs.
async fn encoding(app: &App, key: &RecordKey, of: &Record) -> Result<Option<Encoding>> {
    let walk = app.walks.get(&Query::Form(key.scope().clone())).await?;
    Ok(walk.and_then(|(walk, _)| walk.form).map(|form| evidence::with_steps(form, of)))
}

async fn whole<'k>(app: &App, key: &'k RecordKey, is_open: bool) -> Result<Whole<'k>> {
    let store = evidence::readable(&app.access.store);
    let record = store.get(key).await?.ok_or_else(absent)?;
    let now = walk::now(&app.access.store).await?;
    // The page opens even if another record of the operation cannot be read. `confirm` reports that error
    // when a person records a result.
    let form = encoding(app, key, &record).await.ok().flatten().unwrap_or(Encoding::Unknown);
    Ok(Whole { key, record, now, form, is_open })
}

/// A record, as a page's address names it. The operation is part of the address, because several operations
/// may have a record with the same digest.
#[derive(Deserialize)]
struct Named {
    scope: String,
    digest: String,
}

async fn one(visit: Visit, Form(name): Form<Named>) -> Handled {
    let scope = find::scope(&name.scope)?;
    if scope.is_reserved() {
        let text = "the console shows and changes none of idem's own records";
        return Err(Error::new(Kind::Refused, text).into());
    }
    let Some(key) = visit.app.walks.named(scope, &name.digest).await? else {
        return Err(evidence::absent(&visit.app.access).await.into());
    };
    let body = record::record(&visit, whole(&visit.app, &key, false).await?);
    Ok(visit.page("Record", &body))
}

#[derive(Deserialize)]
struct Question {
    q: String,
}

/// The records with this key in the operations that the first page's last walk has seen. This reads each
/// record by its name, and needs no walk of its own.
async fn by_key(app: &App, text: &str) -> Result<Vec<RecordKey>> {
    let (Ok(key), Some((walk, _))) = (Key::new(text), app.walks.get(&Query::Overview).await?) else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for scope in walk.look.counted.scopes.keys() {
        let name = RecordKey::new(find::scope(scope)?, key.clone());
        names.extend(find::by_name(&app.access, name).await?);
    }
    Ok(names)
}

async fn search(visit: Visit, Form(question): Form<Question>) -> Handled {
    let (app, text) = (&visit.app, question.q.trim());
    let mut names = by_key(app, text).await?;
    if names.is_empty() {
        let query = Query::Find(None, text.to_owned());
        let (walk, _) = app.walks.get(&query).await?.ok_or_else(still_looking)?;
        names.clone_from(&walk.names);
    } else {
        app.walks.remember(&names);
    }
    let address = |key: &RecordKey| overview::address(key.scope().as_str(), &key.digest().to_string());
    match names.as_slice() {
        [] => Err(evidence::absent(&app.access).await.into()),
        [one] => Ok(Redirect::to(&address(one)).into_response()),
        several => {
            let list = html! { ul { @for key in several {
                li { a href=(address(key)) { (key.digest()) " of " bdi { (text::safe(key.scope().as_str())) } } }
            } } };
            Ok(visit.page("Several operations have this key", &list))
        }
    }
}

/// A form that was issued to this operator and is sent for the first time. The console refuses any other
/// form.
struct Answered {
    visit: Visit,
    issued: Issued,
    sent: Sent,
}

impl FromRequest<Arc<App>> for Answered {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> std::result::Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let sent = Form::<Sent>::from_request(Request::from_parts(parts, body), app).await;
        let Form(sent) = sent.map_err(IntoResponse::into_response)?;
        if let Some(issued) = app.forms.take(&visit.operator.name, &sent.form) {
            return Ok(Self { visit, issued, sent });
        }
        let why = "This form was sent before, or belongs to somebody else. Open the record again.";
        Err(visit.message(StatusCode::FORBIDDEN, "Refused", why))
    }
}

/// Shows the key and the result. The audit trail records who saw them.
async fn reveal(Answered { visit, issued, .. }: Answered) -> Handled {
    let trail = Trail { by: visit.operator.name.clone(), reason: None };
    let deed = Deed::on(&issued.key, "revealed", None);
    let reading = whole(&visit.app, &issued.key, true);
    let whole = trail.around(&visit.app.access.store, &deed, reading).await?;
    Ok(visit.page("Record", &record::record(&visit, whole)))
}

/// Checks a decision, and asks whether to carry it out.
async fn confirm(Answered { visit, issued, sent }: Answered) -> Handled {
    let (app, key) = (&visit.app, issued.key);
    if app.read_only {
        return Err(Error::new(Kind::Refused, "this console is read-only and changes nothing").into());
    }
    let (shown, record) = act::look(&app.access, &key).await?.ok_or_else(absent)?;
    let Some(record) = record.filter(|_| shown.seen() == issued.shown.seen()) else {
        return Err(changed(RecordState::from_word(shown.word())).into());
    };
    let decision = sent.decision()?;
    decision.check(shown)?;
    if decision.records() {
        let form = encoding(app, &key, &record).await?.ok_or_else(still_looking)?;
        result::check(form, !sent.status.is_empty(), &app.access, sent.is_said).await?;
    }
    let reason = Some(sent.reason.clone()).filter(|reason| !reason.is_empty());
    let issued = Issued { key, shown, decided: Some((decision.clone(), reason)) };
    Ok(visit.page("This will happen", &record::question(&visit, issued, &decision, &sent)))
}

async fn settle(Answered { visit, issued, .. }: Answered) -> Handled {
    let Some((decision, reason)) = issued.decided else {
        return Err(Error::usage("choose what happened, and confirm it").into());
    };
    let trail = Trail { by: visit.operator.name.clone(), reason };
    let settled = act::settle(&visit.app.access, &trail, &issued.key, issued.shown, &decision).await;
    visit.app.walks.changed();
    settled?;
    let text = "The decision is recorded, and in the audit trail.";
    Ok(visit.message(StatusCode::OK, "Done", text))
}
