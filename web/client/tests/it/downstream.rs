//! Keys of requests inside an idempotent body.

use std::convert::Infallible;
use std::future::ready;

use http::{Request, Response};
use idem_client::{IdempotencyClientLayer, Key, Policy};
use idem_runtime::{Error, MemoryStore, Operation, context};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Sends a request, and returns the key that a gateway saw.
async fn sent(url: &str, key: Option<Key>) -> String {
    let mut request = Request::post(url).body(String::new()).unwrap();
    if let Some(key) = key {
        request.extensions_mut().insert(key);
    }
    let gateway = service_fn(|request: Request<String>| {
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        ready(Ok::<_, Infallible>(Response::new(key)))
    });
    let client = IdempotencyClientLayer::new(Policy::new()).layer(gateway);
    client.oneshot(request).await.unwrap().into_body()
}

#[tokio::test]
async fn a_named_key_is_the_same_for_every_host_and_path_and_no_key_depends_on_the_user_in_the_url() {
    let body = || async {
        let key = || Some(Key::named("charge"));
        let keys = [
            sent("https://eu1.example.com/charges", key()).await,
            sent("https://eu2.example.com:8443/v2/charges", key()).await,
            sent("https://eu1.example.com/charges", None).await,
            sent("https://user:secret@eu1.example.com/charges", None).await,
        ];
        // The expected keys. They depend only on the call and the name, so a body that runs again sends the
        // same keys.
        let names = ["charge", "POST eu1.example.com/charges"];
        let derived = names.map(|name| format!("\"{}\"", context().unwrap().downstream_key(name)));
        Ok::<_, Error>((keys, derived))
    };
    let store = MemoryStore::new();
    let charged = Operation::new("payments.charge").run(&store, "order-1", body).await;
    let (keys, [named, of_target]) = charged.unwrap();
    assert_ne!(named, of_target);
    assert_eq!(keys, [named.clone(), named, of_target.clone(), of_target]);
}
