//! A sender that sends an event again, on a real socket.

use hmac::{Hmac, KeyInit as _, Mac as _};
use idem::MemoryStore;
use idem_test_servers::web::{Answer, Request, Server};
use sha2::Sha256;

fn github(id: &str, secret: &str) -> Request {
    let body = br#"{"type":"push"}"#;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    Request::new("POST", "/github")
        .header("X-Hub-Signature-256", signature)
        .header("X-GitHub-Delivery", id)
        .json(body)
}

#[tokio::test]
async fn an_event_that_is_sent_again_is_acknowledged_and_handled_once() {
    let server = Server::start(webhooks::app(MemoryStore::new(), "secret").unwrap()).await;
    let first = server.ask(github("1", "secret")).await;
    let again = server.ask(github("1", "secret")).await;
    assert_eq!((first.status, again.status), (200, 200));
    let is_replay = |answer: &Answer| answer.headers.iter().any(|(name, _)| name == "idempotency-replayed");
    assert_eq!((is_replay(&first), is_replay(&again)), (false, true));
    assert_eq!(server.ask(github("2", "another secret")).await.status, 401);
}
