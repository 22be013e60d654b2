//! Responses of long operations that are too large to record.

use std::sync::Arc;

use axum::http::response::Parts;
use axum::http::{Response as HttpResponse, StatusCode};
use http_body_util::BodyExt as _;
use idem::MemoryStore;
use tokio::sync::Mutex;

use super::{Api, LIMIT, is_the_same, request, settings};

#[tokio::test]
async fn a_response_that_cannot_be_recorded_is_said_or_kept_by_the_users_function_and_its_place_leads_there()
{
    for is_kept in [false, true] {
        let small = MemoryStore::with_max_result_bytes(LIMIT / 2);
        for (store, limit, how) in [
            (MemoryStore::new(), LIMIT, "large"),
            (MemoryStore::new(), LIMIT, "stream"),
            (small, 2 * LIMIT, "large"),
        ] {
            let kept = Arc::new(Mutex::new(Vec::new()));
            let objects = kept.clone();
            let keep = move |head: Parts, body: idem::http::Body| {
                let objects = objects.clone();
                async move {
                    let object = idem::context().unwrap().downstream_key("object");
                    let bytes = body.collect().await.unwrap().to_bytes();
                    objects.lock().await.push((head.status, bytes.len()));
                    let location = format!("https://objects.example/{object}");
                    HttpResponse::builder()
                        .status(303)
                        .header("location", location)
                        .body(String::new())
                        .unwrap()
                }
            };
            let builder = settings(store).max_response_bytes(limit);
            let api = Api::with(if is_kept { builder.large_results(keep) } else { builder }).await;
            let place = api.begin(how).await;
            let end = api.end(&place).await;
            let again = api.server.ask(request("k", how)).await;
            assert_eq!(api.gate.runs.count(), 1);
            if !is_kept {
                assert_eq!((end.status, end.problem()), (409, "response-not-stored".into()), "{how}");
                assert_eq!(again.problem(), "response-not-stored");
                continue;
            }
            assert_eq!((end.status, end.is_replay(), &end.body[..]), (303, true, &b""[..]), "{how}");
            assert!(end.text("location").unwrap().starts_with("https://objects.example/"));
            let length = if how == "large" { LIMIT + 1 } else { "data: 1\n\n".len() };
            assert_eq!(*kept.lock().await, [(StatusCode::OK, length)]);
            assert!(is_the_same(&again, &end));
        }
    }
}
