//! The console in an axum app behind the app's own login, over a store whose walks are counted and can be held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use idem_console::{Operator, service};
use idem_core::listing::{List, Listed, Page};
use idem_core::protocol::{
    Answer, Claim, ClaimAnswer, OnCrash, Owner, Record, Release, ReleaseCause, Request as Asked, State,
};
use idem_core::{Key, RecordKey, Scope, Store, StoreError};
use idem_runtime::MemoryStore;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

const DAY: Duration = Duration::from_secs(86_400);

/// A store that counts the pages that are read, and reads none without a permit.
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
        let key = RecordKey::new(Scope::new("shop.charge").unwrap(), Key::new(key).unwrap());
        let claim = Claim::new(Owner::random(), DAY, DAY).with_on_crash(OnCrash::InDoubt);
        let ClaimAnswer::Granted(grant) = self.inner.claim(&key, &claim).await.unwrap() else {
            panic!("{key:?} is not fresh");
        };
        let release = Release::new(claim.owner, grant.fence, ReleaseCause::Abandoned);
        self.inner.release(&key, &release).await.unwrap();
        key
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

/// An app with a page of its own and the console at `/idem`, behind a login that believes the header `x-user`.
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

async fn ask(
    app: &Router,
    method: Method,
    path: &str,
    user: &str,
    body: &str,
) -> (StatusCode, String, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "app.example")
        .header(header::ORIGIN, "https://app.example")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = if user.is_empty() { request } else { request.header("x-user", user) };
    let response: Response =
        app.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let to = headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default().to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, to, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(app: &Router, path: &str) -> (StatusCode, String, String) {
    ask(app, Method::GET, path, "mara", "").await
}

/// The body of a form with this action, as the page issues its hidden fields, and more fields.
fn form(page: &str, action: &str, more: &str) -> String {
    let form = page.split(&format!("action=\"{action}\"")).nth(1).unwrap_or_else(|| panic!("{page}"));
    let fields = ["form", "scope", "digest", "state", "fence", "attempt"].map(|name| {
        let value = form.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap();
        format!("{name}={}", value.split('"').next().unwrap())
    });
    format!("{}&{more}", fields.join("&"))
}

#[tokio::test]
async fn an_operator_settles_a_key_in_the_app_under_the_name_of_the_apps_login() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    for path in ["/idem/", "/idem/audit", "/idem/metrics", "/idem/nowhere"] {
        assert_eq!(ask(&app, Method::GET, path, "", "").await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(get(&app, "/idem").await.1, "idem/");
    let home = get(&app, "/idem/").await.2;
    let address = format!("record?scope=shop.charge&amp;digest={}", key.digest());
    assert!(home.contains(&format!("href=\"{address}\"")) && home.contains("mara"), "{home}");
    assert!(!home.contains("href=\"/") && !home.contains("action=\"/"), "{home}");
    let page = get(&app, &format!("/idem/{}", address.replace("&amp;", "&"))).await.2;
    let sent = form(&page, "confirm", "action=release&reason=ticket+7");
    let stolen = ask(&app, Method::POST, "/idem/confirm", "eve", &sent).await;
    assert_eq!(stolen.0, StatusCode::FORBIDDEN, "a form of somebody else");
    let question = ask(&app, Method::POST, "/idem/confirm", "mara", &sent).await.2;
    let sent = form(&question, "settle", "action=release&reason=ticket+7");
    let done = ask(&app, Method::POST, "/idem/settle", "mara", &sent).await;
    assert_eq!(done.0, StatusCode::OK, "{done:?}");
    assert_eq!(store.inner.get(&key).await.unwrap().unwrap().state, State::Released);
    let trail = get(&app, "/idem/audit").await.2;
    assert!(trail.contains("mara") && trail.contains("ticket 7") && trail.contains("released"), "{trail}");
}

#[tokio::test]
async fn a_form_is_taken_over_http_2_which_has_no_host() {
    let app = app(&Watched::new(1_000));
    for (origin, is_taken) in [("https://app.example", true), ("https://evil.example", false)] {
        let request = Request::post("https://app.example/idem/find")
            .header("x-user", "mara")
            .header(header::ORIGIN, origin)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let response = app.clone().oneshot(request.body(Body::from("q=order-1")).unwrap()).await.unwrap();
        assert_eq!(response.status() != StatusCode::FORBIDDEN, is_taken, "{origin}");
    }
}

#[tokio::test]
async fn nobody_deletes_the_trail_of_his_own_acts() {
    let store = Watched::new(1_000);
    let (done, other) = (store.in_doubt("order-1").await, store.in_doubt("order-2").await);
    let app = app(&store);
    let page_of = async |key: &RecordKey| {
        get(&app, &format!("/idem/record?scope={}&digest={}", key.scope().as_str(), key.digest())).await.2
    };
    let sent = form(&page_of(&done).await, "confirm", "action=release");
    assert_eq!(ask(&app, Method::POST, "/idem/settle", "mara", &sent).await.0, StatusCode::OK);
    let trail = List::default().with_scope(Scope::new("idem.audit").ok());
    let entries = store.inner.list(&trail).await.unwrap().records;
    let Listed { key, record, .. } = &entries[0];
    let sent = form(&page_of(&other).await, "confirm", "");
    let number = sent.split('&').next().unwrap();
    let sent = format!(
        "{number}&scope=idem.audit&digest={}&state=completed&fence={}&attempt={}&action=forget",
        key.digest(),
        record.fence,
        record.attempt
    );
    assert_eq!(ask(&app, Method::POST, "/idem/settle", "mara", &sent).await.0, StatusCode::CONFLICT);
    assert_eq!(store.inner.list(&trail).await.unwrap().records, entries);
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_began_before_a_change_is_made_again_after_it() {
    let store = Watched::new(3);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    get(&app, "/idem/").await;
    let page = get(&app, &format!("/idem/record?scope=shop.charge&digest={}", key.digest())).await.2;
    assert_eq!(store.pages(), 3);
    tokio::time::advance(Duration::from_secs(100)).await;
    let running = tokio::spawn({
        let app = app.clone();
        async move { get(&app, "/idem/").await.0 }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let sent = form(&page, "confirm", "action=release");
    assert_eq!(ask(&app, Method::POST, "/idem/settle", "mara", &sent).await.0, StatusCode::OK);
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
    assert_eq!(get(&app, "/idem/metrics").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(store.pages(), 0);
    store.permits.add_permits(1);
    let (status, _, text) = get(&app, "/idem/metrics").await;
    assert_eq!((status, store.pages()), (StatusCode::OK, 1));
    assert!(text.contains("state=\"in_doubt\"} 1"), "{text}");
    let looked_at = |text: &str| {
        let at = text.lines().find_map(|line| line.strip_prefix("idem_store_looked_at_timestamp_seconds "));
        at.unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap()
    };
    let begun = looked_at(&text);
    // The walk took 11 s: the next begins a while later, is held up, and the last figures are served with their time.
    tokio::time::advance(Duration::from_secs(100)).await;
    let (status, _, text) = get(&app, "/idem/metrics").await;
    assert_eq!((status, looked_at(&text)), (StatusCode::OK, begun));
    store.permits.add_permits(1);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(looked_at(&get(&app, "/idem/metrics").await.2) > begun + 100.0);
}

#[tokio::test(start_paused = true)]
async fn pages_of_many_requests_cost_one_walk_and_a_record_that_was_shown_none() {
    let store = Watched::new(1_000);
    let key = store.in_doubt("order-1").await;
    let app = app(&store);
    let requests: Vec<_> = (0..50)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { get(&app, "/idem/").await.0 })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), StatusCode::OK);
    }
    assert_eq!(store.pages(), 1);
    let record = format!("/idem/record?scope=shop.charge&digest={}", key.digest());
    let found = ask(&app, Method::POST, "/idem/find", "mara", "q=order-1").await;
    assert_eq!(found.1, record.replace("/idem/", ""));
    assert_eq!(store.pages(), 1, "the key is read in each operation");
    assert_eq!(get(&app, &record).await.0, StatusCode::OK);
    let once = store.pages();
    for _ in 0..5 {
        assert_eq!(get(&app, &record).await.0, StatusCode::OK);
    }
    // How results are kept is looked up once: in the operation, then in the others.
    assert_eq!((once, store.pages()), (3, 3));
}
