//! The console, tested with real requests: what a signed-in person sees, and how others are refused.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};

use idem::protocol::State;
use serde_json::json;

use crate::idem_command::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A console that runs until it is dropped.
struct Console {
    child: Child,
    _out: BufReader<ChildStdout>,
    host: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response.
#[derive(Debug)]
struct Answered {
    status: u16,
    head: String,
    body: String,
}

impl Answered {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The number in the hidden field of the first form with this action.
    fn field(&self, action: &str, name: &str) -> String {
        let action = action.trim_start_matches('/');
        let form =
            self.body.split(&format!("action=\"{action}\"")).nth(1).unwrap_or_else(|| panic!("{self:?}"));
        let field =
            form.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap_or_else(|| panic!("{self:?}"));
        field.split('"').next().unwrap().to_owned()
    }
}

fn encoded(pairs: &[(&str, &str)]) -> String {
    let value = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    pairs.iter().map(|(name, text)| format!("{name}={}", value(text))).collect::<Vec<_>>().join("&")
}

impl Console {
    fn start(shop: &Shop, more: &[&str]) -> Self {
        let file = shop.folder().join("token");
        std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
        let mut words = vec!["console", "--token-file", file.to_str().unwrap()];
        if !more.contains(&"--listen") {
            words.extend(["--listen", "127.0.0.1:0"]);
        }
        words.extend(more);
        let mut child = shop.idem.command(&words).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let host =
            line.trim().trim_end_matches('/').rsplit('/').next().unwrap().replace("0.0.0.0", "127.0.0.1");
        assert!(host.contains(':'), "{line}");
        Self { child, _out: out, host }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request += &format!("Host: {}\r\n", self.host);
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            request += &format!(
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
                body.len()
            );
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answered { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answered {
        self.ask("GET", path, &[], "")
    }

    fn get_as(&self, cookie: &str, path: &str) -> Answered {
        self.ask("GET", path, &[("Cookie", cookie)], "")
    }

    fn origin(&self) -> String {
        format!("http://{}", self.host)
    }

    /// Signs in, and returns the cookie.
    fn sign_in(&self) -> String {
        self.sign_in_as("mara")
    }

    fn sign_in_as(&self, name: &str) -> String {
        let body = encoded(&[("name", name), ("token", TOKEN)]);
        let answered = self.ask("POST", "/login", &[("Origin", &self.origin())], &body);
        assert_eq!(answered.status, 303, "{answered:?}");
        let cookie = answered.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    fn post(&self, path: &str, cookie: &str, pairs: &[(&str, &str)]) -> Answered {
        self.ask("POST", path, &[("Origin", &self.origin()), ("Cookie", cookie)], &encoded(pairs))
    }

    fn record(&self, cookie: &str, name: &idem::RecordKey) -> Answered {
        let query = encoded(&[("scope", name.scope().as_str()), ("digest", &name.digest().to_string())]);
        self.ask("GET", &format!("/record?{query}"), &[("Cookie", cookie)], "")
    }
}

/// The fields of a form about this record, as a page issues them, and `more` fields.
fn sent<'a>(page: &Answered, action: &str, more: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
    let hidden = ["form", "scope", "digest", "state", "fence", "attempt"];
    let mut pairs: Vec<(&str, String)> = hidden.map(|name| (name, page.field(action, name))).to_vec();
    pairs.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    pairs
}

fn borrowed<'p>(pairs: &'p [(&'p str, String)]) -> Vec<(&'p str, &'p str)> {
    pairs.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_doubt_is_resolved_in_two_steps_and_stands_in_the_trail() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-0"), State::Completed).await;
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    let home = console.get_as(&cookie, "/");
    assert!(home.status == 200 && home.body.contains(&key("order-1").digest().to_string()), "{home:?}");
    assert!(!home.body.contains("order-1"), "{home:?}");
    let done = console.get_as(&cookie, "/?scope=shop.charge&state=completed");
    assert!(done.body.contains(&key("order-0").digest().to_string()), "{done:?}");
    assert!(!done.body.contains(&key("order-1").digest().to_string()), "{done:?}");
    let page = console.record(&cookie, &key("order-1"));
    let more = [("action", "completed"), ("value", "\"r-17\""), ("reason", "ticket 7")];
    let pairs = sent(&page, "/confirm", &more);
    let question = console.post("/confirm", &cookie, &borrowed(&pairs));
    assert!(question.body.contains("Every later call with this key gets this value"), "{question:?}");
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt));
    let pairs = sent(&question, "/settle", &more);
    let done = console.post("/settle", &cookie, &borrowed(&pairs));
    assert!(done.status == 200 && done.body.contains("Done"), "{done:?}");
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::Completed));
    let entry = shop.idem.run(&["--json", "audit"]).ended(0).one();
    assert_eq!((&entry["by"], &entry["reason"]), (&json!("mara"), &json!("ticket 7")));
    assert!(console.get_as(&cookie, "/audit").body.contains("ticket 7"));
    // The same form again.
    let replayed = console.post("/settle", &cookie, &borrowed(&pairs));
    assert!(replayed.status == 403 && replayed.body.contains("sent before"), "{replayed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_since_it_was_shown_is_left_alone() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    let page = console.record(&cookie, &key("order-1"));
    let pairs = sent(&page, "/confirm", &[("action", "release")]);
    let question = console.post("/confirm", &cookie, &borrowed(&pairs));
    let pairs = sent(&question, "/settle", &[("action", "release")]);
    idem::Store::forget(&shop.store, &key("order-1")).await.unwrap();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let refused = console.post("/settle", &cookie, &borrowed(&pairs));
    assert!(refused.status == 409 && refused.body.contains("nothing was done"), "{refused:?}");
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_signed_in_or_comes_from_elsewhere_changes_nothing() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    let page = console.record(&cookie, &key("order-1"));
    let pairs = sent(&page, "/confirm", &[("action", "release")]);
    let body = encoded(&borrowed(&pairs));
    let origin = console.origin();
    let asked = |headers: &[(&str, &str)]| console.ask("POST", "/settle", headers, &body).status;
    assert_eq!(asked(&[]), 403, "no origin");
    assert_eq!(asked(&[("Origin", "https://evil.example"), ("Cookie", &cookie)]), 403, "another origin");
    assert_eq!(asked(&[("Origin", "null"), ("Cookie", &cookie)]), 403, "no page's origin");
    assert_eq!(asked(&[("Origin", &origin)]), 401, "no session");
    assert_eq!(asked(&[("Origin", &origin), ("Cookie", "idem_console=00")]), 401, "another session");
    let rebound = [("Host", "evil.example"), ("Origin", "http://evil.example"), ("Cookie", &*cookie)];
    assert_eq!(asked(&rebound), 403, "another name for this machine");
    assert_eq!(console.ask("GET", "/", &[("Host", "evil.example")], "").status, 403);
    // Somebody else's form.
    let other = console.sign_in_as("eve");
    assert_eq!(asked(&[("Origin", &origin), ("Cookie", &other)]), 403, "a form of somebody else");
    for token in ["", "0123456789abcdef", "0123456789abcdef0123456789abcdeg"] {
        let said = encoded(&[("name", "eve"), ("token", token)]);
        let refused = console.ask("POST", "/login", &[("Origin", &origin)], &said);
        assert_eq!((refused.status, refused.header("set-cookie")), (401, None));
    }
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt));
    shop.idem.run(&["audit"]).ended(1);
    // A page of another site may link here, and may load nothing from here.
    for (site, mode, status) in
        [("cross-site", "no-cors", 403), ("same-site", "no-cors", 403), ("cross-site", "navigate", 200)]
    {
        let headers = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode), ("Cookie", &*cookie)];
        assert_eq!(console.ask("GET", "/?state=completed", &headers, "").status, status, "{site} {mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_for_other_machines_shows_nothing_without_a_token() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    shop.idem.run(&["console", "--listen", "0.0.0.0:0"]).ended(2);
    let short = shop.folder().join("short");
    std::fs::write(&short, "hunter2").unwrap();
    shop.idem.run(&["console", "--token-file", short.to_str().unwrap()]).ended(2);
    let console = Console::start(&shop, &["--listen", "0.0.0.0:0"]);
    for path in ["/", "/audit", "/record?scope=s&digest=0"] {
        let answered = console.get(path);
        assert_eq!((answered.status, answered.header("location")), (303, Some("login")), "{path}");
    }
    assert_eq!(console.get("/metrics").status, 401);
    let bearer = format!("Bearer {TOKEN}");
    let metrics = console.ask("GET", "/metrics", &[("Authorization", &bearer)], "");
    assert!(metrics.body.contains("idem_store_records{operation=\"shop.charge\",state=\"in_doubt\"} 1"));
    let cookie = console.sign_in();
    assert_eq!(console.ask("GET", "/", &[("Cookie", &cookie)], "").status, 200);
    console.post("/logout", &cookie, &[]);
    assert_eq!(console.ask("GET", "/", &[("Cookie", &cookie)], "").status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_console_changes_nothing() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &["--read-only"]);
    let cookie = console.sign_in();
    let page = console.record(&cookie, &key("order-1"));
    assert!(!page.body.contains("\"confirm\""), "{page:?}");
    // The number of a form that exists, for another action.
    let pairs = sent(&page, "/reveal", &[("action", "release")]);
    let refused = console.post("/settle", &cookie, &borrowed(&pairs));
    assert!(refused.status == 409 && refused.body.contains("read-only"), "{refused:?}");
    assert_eq!(state_of(&shop.store, &key("order-1")).await, Some(State::InDoubt));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_text_and_a_key_is_shown_where_that_is_asked_for() {
    let shop = Shop::new();
    let html = "<script>alert(1)</script>\"'><img src=x>";
    let long = "\u{5d0}\u{202e}x".repeat(1_024 / 6);
    let names = [key_of(html, html), key_of("long", &long), key_of("quotes\"'", "a&amp;b<")];
    for name in &names {
        bring(&shop.store, name, State::InDoubt).await;
    }
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    for name in &names {
        let page = console.record(&cookie, name);
        assert_eq!(page.status, 200, "{page:?}");
        let pairs = sent(&page, "/reveal", &[]);
        // Names in forms are escaped as HTML.
        let scope = name.scope().as_str();
        let pairs: Vec<_> =
            pairs.into_iter().map(|(n, v)| (n, if n == "scope" { scope.to_owned() } else { v })).collect();
        let open = console.post("/reveal", &cookie, &borrowed(&pairs));
        assert_eq!(open.status, 200, "{open:?}");
        for page in [&page, &open, &console.get_as(&cookie, "/")] {
            assert!(!page.body.contains("<script") && !page.body.contains("<img"), "{page:?}");
            assert!(!page.body.contains('\u{202e}'), "{page:?}");
        }
    }
    let answer = console.post("/find", &cookie, &[("q", html)]);
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.header("location").unwrap().contains(&names[0].digest().to_string()), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_forbids_scripts_frames_and_caches() {
    let shop = Shop::new();
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    for path in ["/", "/login", "/style.css", "/metrics", "/audit", "/nowhere", "/record"] {
        let answered = console.get_as(if path == "/login" { "" } else { &cookie }, path);
        let policy =
            answered.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {answered:?}"));
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answered.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answered.header("cache-control"), Some("no-store"), "{path}");
        assert!(!answered.body.contains("<script") && !answered.body.contains("style="), "{path}");
        assert!(!answered.body.contains("http://") && !answered.body.contains("https://"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_is_shown_to_a_stranger_on_this_machine() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let digest = key("order-1").digest().to_string();
    let record = format!("/record?{}", encoded(&[("scope", SCOPE), ("digest", &digest)]));
    for path in ["/", "/?state=completed", "/audit", &record, "/nowhere"] {
        let refused = console.get(path);
        assert_eq!((refused.status, refused.header("location")), (303, Some("login")), "{path}");
        assert!(!refused.body.contains(SCOPE), "{refused:?}");
    }
    assert_eq!(console.get("/metrics").status, 401);
    let origin = console.origin();
    let answer = console.ask("POST", "/find", &[("Origin", &origin)], &encoded(&[("q", &digest)]));
    assert_eq!(answer.status, 401, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_on_this_machine_answers_no_proxy() {
    let shop = Shop::new();
    let console = Console::start(&shop, &[]);
    for header in
        ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"]
    {
        let refused = console.ask("GET", "/login", &[(header, "203.0.113.7")], "");
        assert!(refused.status == 403 && refused.body.contains("--public-url"), "{header}: {refused:?}");
    }
    assert_eq!(console.get("/login").status, 200);
    let proxied = Console::start(&shop, &["--public-url", "https://idem.example"]);
    let forwarded = [("X-Forwarded-Proto", "https"), ("Origin", "https://idem.example")];
    let body = encoded(&[("name", "mara"), ("token", TOKEN)]);
    let answered = proxied.ask("POST", "/login", &forwarded, &body);
    assert_eq!(answered.status, 303, "{answered:?}");
    assert!(answered.header("set-cookie").unwrap().contains("; Secure"), "{answered:?}");
    let own = proxied.ask("POST", "/login", &[("Origin", &proxied.origin())], &body);
    assert_eq!(own.status, 403, "{own:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_saw_a_key_and_a_result_is_in_the_trail() {
    let shop = Shop::new();
    bring(&shop.store, &key("order-1"), State::Completed).await;
    let console = Console::start(&shop, &["--read-only"]);
    let cookie = console.sign_in();
    let page = console.record(&cookie, &key("order-1"));
    assert!(!page.body.contains(SECRET), "{page:?}");
    let open = console.post("/reveal", &cookie, &borrowed(&sent(&page, "/reveal", &[])));
    assert!(open.body.contains(SECRET), "{open:?}");
    let entry = shop.idem.run(&["--json", "audit"]).ended(0).one();
    assert_eq!((&entry["by"], &entry["action"]), (&json!("mara"), &json!("revealed")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_that_cannot_be_decrypted_closes_no_page() {
    let mut shop = Shop::new();
    shop.idem =
        Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING", &format!("1 {}", "07".repeat(32)));
    bring(&shop.store, &key("a"), State::Completed).await;
    bring(&shop.store, &key("b"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    let page = console.record(&cookie, &key("b"));
    assert_eq!(page.status, 200, "{page:?}");
    let value = [("action", "completed"), ("value", "1"), ("is_said", "true")];
    let refused = console.post("/confirm", &cookie, &borrowed(&sent(&page, "/confirm", &value)));
    assert!(refused.status == 500 && refused.body.contains("not encrypted"), "{refused:?}");
    let page = console.record(&cookie, &key("b"));
    let release = [("action", "release")];
    let question = console.post("/confirm", &cookie, &borrowed(&sent(&page, "/confirm", &release)));
    let done = console.post("/settle", &cookie, &borrowed(&sent(&question, "/settle", &release)));
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(state_of(&shop.store, &key("b")).await, Some(State::Released));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_in_a_store_of_digests_says_why_it_finds_nothing() {
    let shop = Shop::new();
    let digested = idem::StoreExt::digest_keys(shop.store.clone(), &[9; 32]);
    bring(&digested, &key("order-1"), State::InDoubt).await;
    let console = Console::start(&shop, &[]);
    let cookie = console.sign_in();
    let answer = console.post("/find", &cookie, &[("q", "order-1")]);
    assert!(answer.body.contains("keeps keys as digests"), "{answer:?}");
}
