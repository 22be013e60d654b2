//! The example `payments` on actix-web: the same options, routes and answers.
//!
//! `cargo run -p payments-actix -- --addr 127.0.0.1:3000 --store sqlite:payments.db`
//!
//! ```sh
//! curl -i localhost:3000/payments -H 'Idempotency-Key: "42"' --json '{"amount": 1999, "currency": "EUR"}'
//! ```
//!
//! The same request again returns the same receipt with `Idempotency-Replayed: true`. Further members of the JSON make a payment
//! behave in special ways, to try them by hand: `sleep_ms`, `status`, `body_bytes`, `panic`, `stream_ms`, `set_cookie`.
//! `GET /executions` counts how often each route really ran in this process.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION, SET_COOKIE,
};
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt};
use clap::Parser;
use rig_stores::{Choice, FORMS};
use futures_util::stream;
use http::Method;
use http::request::Parts;
use idem::DynStore;
use idem::http::{Guard, IdempotencyLayer};
use idem_actix::Idempotency;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// How long handlers may run on after the server gets the signal to end.
const LAST_ORDERS: Duration = Duration::from_secs(30);

/// The time between two events of a stream.
const TICK: Duration = Duration::from_millis(50);

/// A payments API whose requests are safe to send twice.
#[derive(Parser)]
struct Options {
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:3000")]
    addr: String,
    /// The store of responses.
    #[arg(long, default_value = "memory", value_name = FORMS)]
    store: Choice,
    /// The lease: how long the key of a process that died stays claimed.
    #[arg(long, default_value_t = 30_000)]
    lease_ms: u64,
    /// How long a response is kept.
    #[arg(long, default_value_t = 86_400_000)]
    ttl_ms: u64,
    /// How long a duplicate waits for the first request before it is refused.
    #[arg(long, default_value_t = 0)]
    wait_ms: u64,
    /// Run requests without a key unprotected, instead of refusing them.
    #[arg(long)]
    optional_key: bool,
    /// Accept only keys in double quotes.
    #[arg(long, conflicts_with = "optional_key")]
    strict: bool,
    /// The largest body of a request.
    #[arg(long, default_value_t = 2 * 1024 * 1024)]
    max_body: usize,
    /// The largest body of a response that is recorded.
    #[arg(long, default_value_t = 1024 * 1024)]
    max_response: usize,
    /// Run requests unprotected while the store is down, instead of answering 503.
    #[arg(long)]
    fail_open: bool,
}

/// How often each route ran.
#[derive(Clone, Default)]
struct Executions(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Executions {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<&'static str, u64>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, route: &'static str) {
        self.with(|counts| *counts.entry(route).or_default() += 1);
    }
}

/// The members of a request that make it behave in special ways.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wishes {
    sleep_ms: u64,
    status: Option<u16>,
    body_bytes: usize,
    panic: bool,
    stream_ms: Option<u64>,
    set_cookie: bool,
}

/// A route, and how it handles a request.
struct Route {
    name: &'static str,
    status: StatusCode,
    /// The members that its JSON must have.
    required: &'static [&'static str],
}

const PAY: Route =
    Route { name: "POST /payments", status: StatusCode::CREATED, required: &["amount", "currency"] };
const CHANGE: Route = Route { name: "PATCH /payments/{id}", status: StatusCode::OK, required: &[] };
const REFUND: Route =
    Route { name: "POST /refunds", status: StatusCode::CREATED, required: &["amount", "currency"] };

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let layer = guard(&options, options.store.open().await?)?;
    let running = layer.running();
    let executions = Data::new(Executions::default());
    let app = move || {
        App::new()
            .app_data(executions.clone())
            .app_data(web::PayloadConfig::new(options.max_body))
            .configure(|routes| api(routes, &Idempotency::new(layer.clone())))
    };
    let server =
        HttpServer::new(app).disable_signals().shutdown_timeout(LAST_ORDERS.as_secs()).bind(&options.addr)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A reader of this line may send the signal to end at once, so its handler is installed before.
    for address in server.addrs() {
        println!("listening on {address}");
    }
    let server = server.run();
    let handle = server.handle();
    rt::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // An actix worker drops its handlers when it ends, so handlers whose clients went away must finish before.
        handle.pause().await;
        let left = running.drain(LAST_ORDERS).await;
        if !left.is_complete() {
            eprintln!(
                "ended with {} handlers still running and {} results not recorded",
                left.bodies, left.results
            );
        }
        handle.stop(true).await;
    });
    Ok(server.await?)
}

fn guard(options: &Options, store: DynStore) -> Result<IdempotencyLayer<DynStore>, idem::Error> {
    let mut layer = IdempotencyLayer::builder(store)
        .scope("payments-api")
        .tenant(tenant)
        .lease(Duration::from_millis(options.lease_ms))
        .ttl(Duration::from_millis(options.ttl_ms))
        .wait(Duration::from_millis(options.wait_ms))
        .max_request_bytes(options.max_body)
        .max_response_bytes(options.max_response)
        .documentation("https://payments.example/docs/idempotency");
    let key = match (options.optional_key, options.strict) {
        (true, _) => Guard::Optional,
        (false, true) => Guard::Quoted,
        (false, false) => Guard::Required,
    };
    layer = layer.guard(move |head| match head.method {
        Method::POST | Method::PATCH => key,
        _ => Guard::Unguarded,
    });
    if options.fail_open {
        layer = layer.fail_open();
    }
    layer.build()
}

/// The tenant. A real API takes it from the authenticated caller.
fn tenant(request: &Parts) -> Option<String> {
    match request.headers.get("x-tenant") {
        Some(tenant) => Some(tenant.to_str().ok()?.to_owned()),
        None => Some("public".to_owned()),
    }
}

fn api(routes: &mut web::ServiceConfig, guard: &Idempotency<DynStore>) {
    let guarded = |path: &str, route: actix_web::Route| web::resource(path).wrap(guard.clone()).route(route);
    routes
        .service(guarded("/payments", web::post().to(pay)))
        .service(guarded("/payments/{id}", web::patch().to(change)))
        .service(guarded("/refunds", web::post().to(refund)))
        .service(guarded("/echo", web::post().to(echo)))
        .route("/executions", web::get().to(executions))
        .route("/executions", web::delete().to(forget_executions));
}

async fn pay(executions: Data<Executions>, body: Bytes) -> HttpResponse {
    carry_out(&executions, &PAY, "payments", &body).await
}

async fn change(executions: Data<Executions>, _id: web::Path<String>, body: Bytes) -> HttpResponse {
    carry_out(&executions, &CHANGE, "payments", &body).await
}

async fn refund(executions: Data<Executions>, body: Bytes) -> HttpResponse {
    carry_out(&executions, &REFUND, "refunds", &body).await
}

async fn echo(executions: Data<Executions>, request: HttpRequest, body: Bytes) -> HttpResponse {
    executions.count("POST /echo");
    let mut response = HttpResponse::Ok();
    if let Some(kind) = request.headers().get(CONTENT_TYPE) {
        response.insert_header((CONTENT_TYPE, kind));
    }
    let mut response = response.body(body);
    if !request.headers().contains_key(CONTENT_TYPE) {
        response.headers_mut().remove(CONTENT_TYPE);
    }
    response
}

async fn executions(executions: Data<Executions>) -> web::Json<Value> {
    web::Json(json!({ "executions": executions.with(|counts| counts.clone()) }))
}

async fn forget_executions(executions: Data<Executions>) -> HttpResponse {
    executions.with(BTreeMap::clear);
    HttpResponse::NoContent().finish()
}

async fn carry_out(executions: &Executions, route: &Route, collection: &str, body: &[u8]) -> HttpResponse {
    let order: Value = serde_json::from_slice(body).unwrap_or_default();
    let missing = route.required.iter().find(|member| order.get(member).is_none());
    let wishes = match (missing, Wishes::deserialize(&order)) {
        (None, Ok(wishes)) => wishes,
        (Some(member), _) => return refused(&format!("the member `{member}` is missing")),
        (None, Err(error)) => return refused(&error.to_string()),
    };
    let Ok(status) = wishes.status.map_or(Ok(route.status), StatusCode::from_u16) else {
        return refused("there is no such status");
    };
    executions.count(route.name);
    sleep(Duration::from_millis(wishes.sleep_ms)).await;
    assert!(!wishes.panic, "a panic was asked for");
    let id = format!("{:032x}", rand::random::<u128>());
    let receipt = receipt(&id, &order, wishes.body_bytes);
    let mut response = match wishes.stream_ms {
        Some(millis) => events(&receipt, Duration::from_millis(millis)),
        None => HttpResponse::Ok().content_type("application/json").body(receipt),
    };
    *response.status_mut() = status;
    add_headers(response.headers_mut(), collection, &id, wishes.set_cookie);
    response
}

/// A problem (RFC 9457), in the form of the layer's own answers.
fn refused(why: &str) -> HttpResponse {
    let status = StatusCode::BAD_REQUEST;
    let problem =
        json!({ "type": "about:blank", "title": "Bad Request", "status": status.as_u16(), "detail": why });
    HttpResponse::build(status).content_type("application/problem+json").body(problem.to_string())
}

/// A receipt padded to `bytes` bytes.
fn receipt(id: &str, order: &Value, bytes: usize) -> String {
    let receipt = |padding: &str| {
        let mut receipt =
            json!({ "id": id, "amount": order.get("amount"), "currency": order.get("currency") });
        if !padding.is_empty() {
            receipt["padding"] = padding.into();
        }
        receipt.to_string()
    };
    let least = receipt("x").len();
    if bytes < least { receipt("") } else { receipt(&"x".repeat(bytes - least + 1)) }
}

/// A stream of events: the receipt at once, and then a tick now and then.
fn events(receipt: &str, time: Duration) -> HttpResponse {
    let end = Instant::now() + time;
    let events = stream::unfold(Some(format!("data: {receipt}\n\n")), move |event| async move {
        let event = event?;
        if event.starts_with(':') {
            sleep(TICK.min(end.saturating_duration_since(Instant::now()))).await;
        }
        let next = (Instant::now() < end).then(|| ": tick\n\n".to_owned());
        Some((Ok::<_, Infallible>(Bytes::from(event)), next))
    });
    HttpResponse::Ok().content_type("text/event-stream").streaming(events)
}

fn add_headers(headers: &mut HeaderMap, collection: &str, id: &str, set_cookie: bool) {
    let mut add = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.append(name, value);
        }
    };
    add(LOCATION, format!("/{collection}/{id}"));
    add(ETAG, format!("\"{id}\""));
    add(LINK, format!("</{collection}/{id}>; rel=\"self\""));
    add(LINK, format!("</{collection}>; rel=\"collection\""));
    if set_cookie {
        add(SET_COOKIE, format!("session={:032x}; HttpOnly", rand::random::<u128>()));
    }
}
