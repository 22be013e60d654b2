//! The console in an axum app behind the app's own login, and behind the console's login. The store counts
//! walks and can delay them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use idem_console::{Console, Login, Operator, service};
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Record, Request as Asked, ResultFormat, State};
use idem_core::{RecordKey, Scope, Store, StoreError};
use idem_operate_kit::Access;
use idem_runtime::MemoryStore;
use idem_wrappers::KeyRing;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::records::{SECRET, bring, key_of};

#[path = "../../cli/tests/it/records.rs"]
mod records;

const HOST: &str = "127.0.0.1:7878";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A store that counts the pages read by walks. A walk needs a permit for each page.
#[derive(Clone)]
struct Watched {
    inner: MemoryStore,
    pages: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Watched {
    fn new(permits: usize) -> Self {
        let permits = Arc::new(Semaphore::new(permits));
        Self { inner: MemoryStore::new(), pages: Arc::default(), permits }
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    async fn in_doubt(&self, key: &str) -> RecordKey {
        self.bring("shop.charge", key, State::InDoubt).await
    }

    async fn bring(&self, scope: &str, key: &str, state: State) -> RecordKey {
        let key = key_of(scope, key);
        bring(&self.inner, &key, state).await;
        key
    }

    async fn state(&self, key: &RecordKey) -> Option<State> {
        self.inner.get(key).await.unwrap().map(|record| record.state)
    }
}

impl Store for Watched {
    async fn apply(&self, key: &RecordKey, request: Asked) -> Result<Answer, StoreError> {
        self.inner.apply(key, request).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.inner.forget(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        if request.limit > 1 {
            self.permits.acquire().await.unwrap().forget();
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.list(request).await
    }
}

/// An app with its own page and the console at `/idem`, behind a login that believes the header `x-user`.
fn app(store: &Watched) -> Router {
    let login = async |mut request: Request, next: Next| {
        let user = request.headers().get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
        let Some(user) = user else { return StatusCode::UNAUTHORIZED.into_response() };
        request.extensions_mut().insert(Operator::new(user));
        next.run(request).await
    };
    let console = Router::new().nest_service("/idem", service(store.clone())).layer(from_fn(login));
    Router::new().route("/", axum::routing::get(async || "the app's own page")).merge(console)
}

fn console(store: &Watched) -> Console {
    Console::of(Access::new(store.clone()))
}

/// The console behind its own login on this machine.
fn protected(console: Console) -> Router {
    Login::new(TOKEN).local().protect(console)
}

#[derive(Debug)]
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answered {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body of the form with this action: the number from the page, and more fields.
    fn form(&self, action: &str, more: &str) -> String {
        let form = self.body.split(&format!("action=\"{action}\"")).nth(1);
        let field = form.and_then(|form| form.split("name=\"form\" value=\"").nth(1));
        let number = field.and_then(|field| field.split('"').next()).unwrap_or_else(|| panic!("{self:?}"));
        format!("form={number}&{more}")
    }
}

async fn ask(app: &Router, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
    let mut request = Request::new(Body::from(body.to_owned()));
    (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
    let own = [
        ("host", HOST),
        ("origin", "http://127.0.0.1:7878"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    for (name, value) in own.iter().chain(headers) {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    Answered { status: parts.status, headers: parts.headers, body }
}

const MARA: [(&str, &str); 1] = [("x-user", "mara")];

async fn get(app: &Router, path: &str) -> Answered {
    ask(app, Method::GET, path, &MARA, "").await
}

async fn post(app: &Router, path: &str, body: &str) -> Answered {
    ask(app, Method::POST, path, &MARA, body).await
}

fn path_of(key: &RecordKey) -> String {
    format!("record?scope={}&digest={}", key.scope().as_str(), key.digest())
}

async fn sign_in(app: &Router) -> String {
    let answer = ask(app, Method::POST, "/login", &[], &format!("name=mara&token={TOKEN}")).await;
    let cookie = answer.header("set-cookie");
    assert!(answer.status == StatusCode::SEE_OTHER && cookie.contains("HttpOnly; SameSite=Strict"));
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn an_operator_settles_a_key_in_the_app_under_the_name_of_the_apps_login() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    for path in ["/idem/", "/idem/audit", "/idem/metrics", "/idem/nowhere"] {
        assert_eq!(ask(&app, Method::GET, path, &[], "").await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    // A page of another site makes the browser send this request, with the cookie of the login.
    let elsewhere = [MARA[0], ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")];
    let refused = ask(&app, Method::GET, "/idem/?state=completed", &elsewhere, "").await;
    assert_eq!((refused.status, store.pages()), (StatusCode::FORBIDDEN, 0));
    assert_eq!(get(&app, "/idem").await.header("location"), "idem/");
    let home = get(&app, "/idem/").await.body;
    let address = path_of(&key).replace('&', "&amp;");
    assert!(home.contains(&format!("href=\"{address}\"")) && home.contains("mara"), "{home}");
    assert!(!home.contains("href=\"/") && !home.contains("action=\"/"), "{home}");
    assert!(!home.contains("order-1"), "{home}");
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    let sent = page.form("confirm", "action=completed&value=7&is_said=true&reason=ticket+7");
    let stolen = ask(&app, Method::POST, "/idem/confirm", &[("x-user", "eve")], &sent).await;
    assert_eq!(stolen.status, StatusCode::FORBIDDEN, "a form of somebody else");
    let question = post(&app, "/idem/confirm", &sent).await;
    assert!(question.body.contains("every later call gets this value"), "{question:?}");
    assert_eq!(store.state(&key).await, Some(State::InDoubt));
    let sent = question.form("settle", "");
    let done = post(&app, "/idem/settle", &sent).await;
    assert_eq!(done.status, StatusCode::OK, "{done:?}");
    assert_eq!(store.state(&key).await, Some(State::Completed));
    let trail = get(&app, "/idem/audit").await.body;
    assert!(trail.contains("mara") && trail.contains("ticket 7") && trail.contains("completed"), "{trail}");
    let again = post(&app, "/idem/settle", &sent).await;
    assert!(again.status == StatusCode::FORBIDDEN && again.body.contains("sent before"), "{again:?}");
}

/// If no record has a result yet, only the operator knows what the operation returns.
#[tokio::test]
async fn a_response_is_recorded_where_no_other_record_shows_that_the_operation_has_them() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    assert!(page.body.contains("this is its HTTP response") && page.body.contains("name=\"status\""));
    let missing = page.form("confirm", "action=responded&value=paid&is_said=true&status=");
    let refused = post(&app, "/idem/confirm", &missing).await;
    assert!(refused.body.contains("expected an HTTP status"), "{refused:?}");
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    let sent =
        page.form("confirm", "action=responded&value=paid&is_said=true&status=201&headers=location:+/7");
    let question = post(&app, "/idem/confirm", &sent).await;
    assert!(question.body.contains("201") && question.body.contains("location: /7"), "{question:?}");
    let done = post(&app, "/idem/settle", &question.form("settle", "")).await;
    assert_eq!(done.status, StatusCode::OK, "{done:?}");
    let recorded = store.inner.get(&key).await.unwrap().unwrap().result.unwrap();
    assert_eq!(recorded.format(), Some(ResultFormat::Response));
}

#[tokio::test]
async fn what_changed_since_it_was_shown_is_left_alone() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    let question = post(&app, "/idem/confirm", &page.form("confirm", "action=release")).await;
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    store.inner.forget(&key).await.unwrap();
    store.in_doubt("order-1").await;
    for (path, sent) in [
        ("/idem/settle", question.form("settle", "")),
        ("/idem/confirm", page.form("confirm", "action=release")),
    ] {
        let refused = post(&app, path, &sent).await;
        assert!(refused.status == StatusCode::CONFLICT && refused.body.contains("nothing was done"));
    }
    assert_eq!(store.state(&key).await, Some(State::InDoubt));
}

#[tokio::test]
async fn a_form_is_taken_over_http_2_which_has_no_host() {
    let app = app(&Watched::new(1_000));
    for (origin, is_taken) in [("https://app.example", true), ("https://evil.example", false)] {
        let request = Request::post("https://app.example/idem/find")
            .header("x-user", "mara")
            .header("origin", origin)
            .header("content-type", "application/x-www-form-urlencoded");
        let response = app.clone().oneshot(request.body(Body::from("q=order-1")).unwrap()).await.unwrap();
        assert_eq!(response.status() != StatusCode::FORBIDDEN, is_taken, "{origin}");
    }
}

#[tokio::test]
async fn whoever_is_not_signed_in_or_comes_from_elsewhere_sees_and_changes_nothing() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = protected(console(&store));
    let record = format!("/{}", path_of(&key));
    for path in ["/", "/?state=completed", "/audit", &record, "/nowhere"] {
        let refused = ask(&app, Method::GET, path, &[], "").await;
        assert_eq!((refused.status, refused.header("location")), (StatusCode::SEE_OTHER, "login"), "{path}");
        assert!(!refused.body.contains("shop.charge"), "{refused:?}");
    }
    for (path, headers) in [("/metrics", &[][..]), ("/metrics", &[("authorization", "Bearer x")])] {
        assert_eq!(ask(&app, Method::GET, path, headers, "").await.status, StatusCode::UNAUTHORIZED);
    }
    let bearer = format!("Bearer {TOKEN}");
    let metrics = ask(&app, Method::GET, "/metrics", &[("authorization", &bearer)], "").await;
    assert!(metrics.body.contains("{operation=\"shop.charge\",state=\"in_doubt\"} 1"), "{metrics:?}");
    for token in ["", "0123456789abcdef", "0123456789abcdef0123456789abcdeg"] {
        let refused = ask(&app, Method::POST, "/login", &[], &format!("name=eve&token={token}")).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (StatusCode::UNAUTHORIZED, ""));
    }
    let cookie = sign_in(&app).await;
    let cookie = cookie.as_str();
    let page = ask(&app, Method::GET, &record, &[("cookie", cookie)], "").await;
    let sent = page.form("confirm", "action=release");
    for (headers, status) in [
        (&[("origin", "https://evil.example"), ("cookie", cookie)][..], StatusCode::FORBIDDEN),
        (&[("origin", "null"), ("cookie", cookie)], StatusCode::FORBIDDEN),
        (
            &[("host", "evil.example"), ("origin", "http://evil.example"), ("cookie", cookie)],
            StatusCode::FORBIDDEN,
        ),
        (&[], StatusCode::UNAUTHORIZED),
        (&[("cookie", "idem_console=00")], StatusCode::UNAUTHORIZED),
        (&[("cookie", cookie)], StatusCode::OK),
    ] {
        assert_eq!(ask(&app, Method::POST, "/confirm", headers, &sent).await.status, status, "{headers:?}");
    }
    // A page of another site may link to the console, but may load nothing from it.
    for (site, mode, status) in [
        ("cross-site", "no-cors", StatusCode::FORBIDDEN),
        ("same-site", "no-cors", StatusCode::FORBIDDEN),
        ("cross-site", "navigate", StatusCode::OK),
    ] {
        let headers = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("cookie", cookie)];
        assert_eq!(ask(&app, Method::GET, "/", &headers, "").await.status, status, "{site} {mode}");
    }
    ask(&app, Method::POST, "/logout", &[("cookie", cookie)], "").await;
    let ended = ask(&app, Method::GET, "/", &[("cookie", cookie)], "").await;
    assert_eq!(ended.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_console_on_this_machine_answers_no_proxy() {
    let store = Watched::new(1_000);
    let app = protected(console(&store));
    for header in
        ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "forwarded", "via"]
    {
        let refused = ask(&app, Method::GET, "/login", &[(header, "203.0.113.7")], "").await;
        assert!(refused.status == StatusCode::FORBIDDEN && refused.body.contains("--public-url"), "{header}");
    }
    assert_eq!(ask(&app, Method::GET, "/login", &[], "").await.status, StatusCode::OK);
    let app = Login::new(TOKEN).origin("https://idem.example").protect(console(&store));
    let forwarded = [("x-forwarded-proto", "https"), ("origin", "https://idem.example")];
    let body = format!("name=mara&token={TOKEN}");
    let answer = ask(&app, Method::POST, "/login", &forwarded, &body).await;
    assert!(answer.header("set-cookie").contains("; Secure"), "{answer:?}");
    assert_eq!(ask(&app, Method::POST, "/login", &[], &body).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_read_only_console_changes_nothing_and_notes_who_saw_a_key_and_a_result() {
    let store = Watched::new(1_000);
    let key = store.bring("shop.charge", "order-1", State::Completed).await;
    let app = protected(console(&store).read_only());
    let cookie = sign_in(&app).await;
    let cookie = [("cookie", &*cookie)];
    let page = ask(&app, Method::GET, &format!("/{}", path_of(&key)), &cookie, "").await;
    assert!(!page.body.contains("\"confirm\"") && !page.body.contains(SECRET), "{page:?}");
    let open = ask(&app, Method::POST, "/reveal", &cookie, &page.form("reveal", "")).await;
    assert!(open.body.contains(SECRET) && open.body.contains("order-1"), "{open:?}");
    let trail = ask(&app, Method::GET, "/audit", &cookie, "").await;
    assert!(trail.body.contains("mara") && trail.body.contains("revealed"), "{trail:?}");
    // An entry of the audit trail has no page.
    let entries = List::default().with_scope(Scope::new("idem.audit").ok());
    let entry = path_of(&store.inner.list(&entries).await.unwrap().records[0].key);
    let refused = ask(&app, Method::GET, &format!("/{entry}"), &cookie, "").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    // The number of the form is valid, but the console issued it for another action.
    let page = ask(&app, Method::GET, &format!("/{}", path_of(&key)), &cookie, "").await;
    let refused = ask(&app, Method::POST, "/confirm", &cookie, &page.form("reveal", "action=forget")).await;
    assert!(refused.status == StatusCode::CONFLICT && refused.body.contains("read-only"), "{refused:?}");
    let page = ask(&app, Method::GET, &format!("/{}", path_of(&key)), &cookie, "").await;
    let refused = ask(&app, Method::POST, "/settle", &cookie, &page.form("reveal", "action=forget")).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(store.state(&key).await, Some(State::Completed));
}

#[tokio::test]
async fn hostile_names_are_text_and_every_answer_forbids_scripts_frames_and_caches() {
    let store = Watched::new(1_000);
    let html = "<script>alert(1)</script>\"'><img src=x>";
    let long = "\u{5d0}\u{202e}x".repeat(1_024 / 6);
    let (app, empty) = (app(&store), app(&Watched::new(1_000)));
    let mut pages = Vec::new();
    for (scope, key) in [(html, html), ("long", long.as_str()), ("quotes\"'", "a&amp;b<")] {
        let key = store.bring(scope, key, State::InDoubt).await;
        let found = post(&app, "/idem/find", &format!("q={}", key.digest())).await;
        let page = get(&app, &format!("/idem/{}", found.header("location"))).await;
        pages.push(post(&app, "/idem/reveal", &page.form("reveal", "")).await);
        assert_eq!(pages.last().unwrap().status, StatusCode::OK);
        pages.push(page);
    }
    for path in ["", "style.css", "metrics", "audit", "nowhere", "record"] {
        pages.push(get(&empty, &format!("/idem/{path}")).await);
    }
    pages.push(ask(&protected(console(&store)), Method::GET, "/login", &[], "").await);
    for page in &pages {
        for text in ["<script", "<img", "\u{202e}", "style=", "http://", "https://"] {
            assert!(!page.body.contains(text), "{text}: {page:?}");
        }
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{page:?}");
        assert_eq!(
            (page.header("x-content-type-options"), page.header("cache-control")),
            ("nosniff", "no-store")
        );
    }
}

#[tokio::test]
async fn a_neighbour_that_cannot_be_decrypted_closes_no_page() {
    let store = Watched::new(1_000);
    store.bring("shop.charge", "a", State::Completed).await;
    let key = store.in_doubt("b").await;
    let app =
        protected(Console::of(Access::new(store.clone()).with_key_ring(KeyRing::new(1, &[7; 32]), false)));
    let cookie = sign_in(&app).await;
    let cookie = [("cookie", &*cookie)];
    let record = format!("/{}", path_of(&key));
    let page = ask(&app, Method::GET, &record, &cookie, "").await;
    let sent = page.form("confirm", "action=completed&value=1&is_said=true");
    let refused = ask(&app, Method::POST, "/confirm", &cookie, &sent).await;
    assert!(refused.body.contains("not encrypted"), "{refused:?}");
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    let page = ask(&app, Method::GET, &record, &cookie, "").await;
    let sent = page.form("confirm", "action=release");
    let question = ask(&app, Method::POST, "/confirm", &cookie, &sent).await;
    assert_eq!(question.status, StatusCode::OK, "{question:?}");
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_began_before_a_change_is_made_again_after_it() {
    let store = Watched::new(3);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    get(&app, "/idem/").await;
    let page = get(&app, &format!("/idem/{}", path_of(&key))).await;
    assert_eq!(store.pages(), 3);
    tokio::time::advance(Duration::from_secs(100)).await;
    let running = tokio::spawn({
        let app = app.clone();
        async move { get(&app, "/idem/").await.status }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let question = post(&app, "/idem/confirm", &page.form("confirm", "action=release")).await;
    assert_eq!(post(&app, "/idem/settle", &question.form("settle", "")).await.status, StatusCode::OK);
    store.permits.add_permits(2);
    assert_eq!((running.await.unwrap(), store.pages()), (StatusCode::OK, 4));
    get(&app, "/idem/").await;
    assert_eq!(store.pages(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_scrape_that_gives_up_ends_no_walk_and_a_later_one_gets_its_figures() {
    let store = Watched::new(0);
    let _ = store.in_doubt("order-1").await;
    let app = app(&store);
    for _ in 0..3 {
        let scrape = tokio::time::timeout(Duration::from_secs(2), get(&app, "/idem/metrics"));
        assert!(scrape.await.is_err(), "the walk is held up");
    }
    assert_eq!(get(&app, "/idem/metrics").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(store.pages(), 0);
    store.permits.add_permits(1);
    let Answered { status, body: text, .. } = get(&app, "/idem/metrics").await;
    assert_eq!((status, store.pages()), (StatusCode::OK, 1));
    assert!(text.contains("state=\"in_doubt\"} 1"), "{text}");
    let looked_at = |text: &str| {
        let at = text.lines().find_map(|line| line.strip_prefix("idem_store_looked_at_timestamp_seconds "));
        at.unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap()
    };
    let begun = looked_at(&text);
    // The first walk took 11 s. The next walk waits for a permit, so the response has the figures of the
    // first walk, with their time.
    tokio::time::advance(Duration::from_secs(100)).await;
    let Answered { status, body: text, .. } = get(&app, "/idem/metrics").await;
    assert_eq!((status, looked_at(&text)), (StatusCode::OK, begun));
    store.permits.add_permits(1);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(looked_at(&get(&app, "/idem/metrics").await.body) > begun + 100.0);
}

#[tokio::test(start_paused = true)]
async fn pages_of_many_requests_cost_one_walk_and_a_record_that_was_shown_none() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    let requests: Vec<_> = (0..50)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { get(&app, "/idem/").await.status })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), StatusCode::OK);
    }
    assert_eq!(store.pages(), 1);
    let record = format!("/idem/{}", path_of(&key));
    assert_eq!(post(&app, "/idem/find", "q=order-1").await.header("location"), path_of(&key));
    assert_eq!(store.pages(), 1, "the key is read in each operation");
    assert_eq!(get(&app, &record).await.status, StatusCode::OK);
    let once = store.pages();
    for _ in 0..5 {
        assert_eq!(get(&app, &record).await.status, StatusCode::OK);
    }
    // The console finds out only once how results are kept. That takes two walks: one through the operation,
    // and one through all operations.
    assert_eq!((once, store.pages()), (3, 3));
    for _ in 0..5 {
        assert_eq!(get(&app, "/idem/?state=completed").await.status, StatusCode::OK);
    }
    assert_eq!(store.pages(), 4);
}
