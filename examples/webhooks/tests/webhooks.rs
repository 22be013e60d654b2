//! Senders that send an event again, on a real socket.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use idem::{DynStore, MemoryStore};
use idem_test_servers::web::{Request, Server};
use webhooks::{App, router, sign};

const SECRET: &[u8] = b"whsec";

fn app(work: Duration) -> App {
    let store = DynStore::new(MemoryStore::new());
    App { store, secret: SECRET.into(), handled: Arc::default(), work }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stripe(id: &str, at: u64) -> Request {
    let body = format!(r#"{{"id":"{id}","type":"charge.succeeded"}}"#);
    let signature = hex(&sign(SECRET, &[at.to_string().as_bytes(), b".", body.as_bytes()]));
    // While a secret is rotated, the header also has a signature by the old secret.
    let header = format!("t={at},v1={},v1={signature},v0=00", "00".repeat(32));
    Request::new("POST", "/stripe").header("Stripe-Signature", header).json(body)
}

fn github(id: &str) -> Request {
    let body = br#"{"type":"push"}"#;
    let header = format!("sha256={}", hex(&sign(SECRET, &[body])));
    Request::new("POST", "/github")
        .header("X-Hub-Signature-256", header)
        .header("X-GitHub-Delivery", id)
        .json(body)
}

fn svix(id: &str, at: u64) -> Request {
    let (body, at) = (br#"{"type":"invoice.paid"}"#, at.to_string());
    let signature = STANDARD.encode(sign(SECRET, &[id.as_bytes(), b".", at.as_bytes(), b".", body]));
    let request = Request::new("POST", "/svix").header("svix-id", id).header("svix-timestamp", at);
    request.header("svix-signature", format!("v1,AAAA v1,{signature}")).json(body)
}

#[tokio::test]
async fn an_event_that_is_sent_again_is_acknowledged_and_handled_once() {
    let app = app(Duration::ZERO);
    let server = Server::start(router(app.clone())).await;
    // A retry has a new signature, with its own time.
    for at in [now() - 60, now()] {
        for request in [stripe("1", at), github("1"), svix("1", at), stripe("2", at)] {
            assert_eq!(server.ask(request).await.status, 204);
        }
    }
    let mut handled = app.handled.lock().unwrap().clone();
    handled.sort();
    let expected =
        ["github 1 push", "stripe 1 charge.succeeded", "stripe 2 charge.succeeded", "svix 1 invoice.paid"];
    assert_eq!(handled, expected);
}

#[tokio::test]
async fn an_event_that_comes_again_while_it_is_handled_is_not_acknowledged() {
    let app = app(Duration::from_millis(500));
    let server = Server::start(router(app.clone())).await;
    let (first, second) = tokio::join!(server.ask(github("1")), server.ask(github("1")));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 503]);
    assert_eq!(server.ask(github("1")).await.status, 204);
    assert_eq!(app.handled.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_sender_did_not_sign_takes_no_key() {
    let app = app(Duration::ZERO);
    let server = Server::start(router(app.clone())).await;
    let forged = [
        github("1").body(r#"{"type":"pull"}"#),
        svix("1", now()).header("svix-id", "2"),
        svix("1", now() - 3_600),
        stripe("1", now() - 3_600),
        stripe("1", now()).body(r#"{"id":"1","type":"charge.refunded"}"#),
        Request::new("POST", "/stripe").json("{}"),
    ];
    for (number, request) in forged.into_iter().enumerate() {
        // Of two headers with one name the first counts, for the signature and for the key.
        let expected = if number == 1 { 204 } else { 400 };
        assert_eq!(server.ask(request).await.status, expected, "{number}");
    }
    // No refused request has used up a key of the sender.
    for request in [github("1"), stripe("1", now())] {
        assert_eq!(server.ask(request).await.status, 204);
    }
    assert_eq!(app.handled.lock().unwrap().len(), 3);
}
