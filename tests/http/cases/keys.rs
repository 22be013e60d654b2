//! What decides whether two requests have the same key: the header, tenants and scopes.

use idem::MemoryStore;
use idem::http::{Guard, IdempotencyLayer};
use idem_test_servers::web::Request;

use super::{account, api, with};

#[tokio::test]
async fn two_tenants_with_one_key_never_meet_however_they_are_spelled() {
    let long = "x".repeat(3_000);
    let (server, runs) = with(|builder| builder.tenant(account)).await;
    let ask = |tenant: &str, key: &str| {
        Request::new("POST", "/pay")
            .header("X-Account", tenant)
            .header("Idempotency-Key", format!("\"{key}\""))
    };
    let pairs =
        [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("A", "b/c"), (&long[..2_999], "k"), (&long, "k")];
    for (done, (tenant, key)) in pairs.into_iter().enumerate() {
        assert!(!server.ask(ask(tenant, key)).await.is_replay(), "{done}");
    }
    for (tenant, key) in pairs {
        assert!(server.ask(ask(tenant, key)).await.is_replay());
    }
    assert_eq!(runs.count(), pairs.len());
    for nobody in [Request::post("/pay", "k"), ask("", "k")] {
        let refused = server.ask(nobody).await;
        assert_eq!((refused.status, refused.problem()), (400, "tenant-missing".into()));
    }
    assert_eq!(runs.count(), pairs.len());
}

#[tokio::test]
async fn one_function_of_the_head_says_which_requests_are_guarded() {
    let (server, runs) = with(|builder| {
        builder.guard(|head| match head.uri.path() {
            "/open" => Guard::Unguarded,
            "/optional" => Guard::Optional,
            "/panic" => panic!("a bug"),
            _ => Guard::Quoted,
        })
    })
    .await;
    let ask = async |path: &str, key: Option<&str>| {
        let request = Request::new("DELETE", path);
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let answer = server.ask(request).await;
        if answer.status == 201 { answer.is_replay().to_string() } else { answer.problem() }
    };
    for (path, key, answer) in [
        ("/open", Some("\"a\""), "false"),
        ("/open", Some("\"a\""), "false"),
        ("/optional", None, "false"),
        ("/optional", Some("b"), "false"),
        ("/optional", Some("\"b\""), "true"),
        ("/required", None, "key-missing"),
        ("/required", Some("c"), "key-malformed"),
        ("/required", Some("\"c\""), "false"),
        ("/required", Some("\"c\""), "true"),
        ("/panic", Some("\"d\""), "misconfigured"),
        ("/panic", None, "misconfigured"),
    ] {
        assert_eq!(ask(path, key).await, answer, "{path} {key:?}");
    }
    assert_eq!(runs.count(), 5);
}

#[tokio::test]
async fn two_layers_of_one_store_meet_only_under_one_scope() {
    let store = MemoryStore::new();
    let under = async |scope: &'static str| {
        let layer =
            IdempotencyLayer::builder(store.clone()).scope(scope).shared_by_all_clients().build().unwrap();
        let (server, _) = api(layer).await;
        server.ask(Request::post("/pay", "k")).await.is_replay()
    };
    assert!(!under("one").await);
    assert!(!under("other").await);
    assert!(under("one").await);
}
