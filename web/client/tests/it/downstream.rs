//! Tests of requests inside an idempotent body.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use idem_client::{IdempotencyClientLayer, Key, Policy};
use idem_runtime::{Error, MemoryStore, Operation};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Why a body failed.
#[derive(Debug)]
enum Failed {
    Mail,
    Idem(#[expect(dead_code, reason = "shown where a test fails")] Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// The keys that a gateway saw.
#[derive(Clone, Default)]
struct Gateway(Arc<Mutex<Vec<String>>>);

impl Gateway {
    async fn send(&self, path: &str, key: Option<Key>) {
        self.send_to(&format!("http://gateway.example.com{path}"), key).await;
    }

    async fn send_to(&self, url: &str, key: Option<Key>) {
        let mut request = Request::post(url).body(String::new()).unwrap();
        if let Some(key) = key {
            request.extensions_mut().insert(key);
        }
        let seen = self.0.clone();
        let service = service_fn(move |request: Request<String>| {
            seen.lock().unwrap().push(request.headers()["idempotency-key"].to_str().unwrap().to_owned());
            async { Ok::<_, Infallible>(Response::new(())) }
        });
        let client = IdempotencyClientLayer::new(Policy::new()).layer(service);
        client.oneshot(request).await.unwrap();
    }

    /// The keys that it saw since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Charges an order in a body that sends two requests.
async fn charge(store: &MemoryStore, gateway: &Gateway, order: &str, names: [Option<Key>; 2], fails: bool) {
    let [first, second] = names;
    let body = || async {
        gateway.send("/payments", first).await;
        gateway.send("/payments", second).await;
        if fails { Err(Failed::Mail) } else { Ok(()) }
    };
    let charged = Operation::new("payments.charge").run(store, order.to_owned(), body).await;
    assert_eq!(charged.is_err(), fails, "{charged:?}");
}

#[tokio::test]
async fn a_body_that_runs_again_sends_the_keys_that_it_sent_before() {
    let (store, gateway) = (MemoryStore::new(), Gateway::default());
    let names = || [None, Some(Key::named("tip"))];
    charge(&store, &gateway, "order-1", names(), true).await;
    let first = gateway.take();
    charge(&store, &gateway, "order-1", names(), false).await;
    assert_eq!(gateway.take(), first);
    assert_ne!(first[0], first[1], "a name tells two requests of one body apart");
    charge(&store, &gateway, "order-2", names(), false).await;
    let other = gateway.take();
    assert!(first.iter().all(|key| !other.contains(key)), "another order has other keys");
}

#[tokio::test]
async fn a_named_key_is_the_same_for_every_host_and_path_and_no_key_depends_on_the_user_in_the_url() {
    let (store, gateway) = (MemoryStore::new(), Gateway::default());
    let key = || Some(Key::named("charge"));
    let body = || async {
        gateway.send_to("https://eu1.example.com/charges", key()).await;
        gateway.send_to("https://eu2.example.com:8443/v2/charges", key()).await;
        gateway.send_to("https://eu1.example.com/charges", None).await;
        gateway.send_to("https://user:secret@eu1.example.com/charges", None).await;
        let downstream = idem_runtime::context().unwrap().downstream_key("charge");
        Ok::<_, Failed>(format!("\"{downstream}\""))
    };
    let downstream = Operation::new("payments.charge").run(&store, "order-1", body).await.unwrap();
    let keys = gateway.take();
    assert_eq!((&keys[0], &keys[1]), (&downstream, &downstream));
    assert_eq!(keys[2], keys[3]);
    assert_ne!(keys[2], downstream);
}
