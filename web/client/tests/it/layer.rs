//! Tests of the layer over a service that fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use idem_client::{IdempotencyClientLayer, Key, Policy};
use tokio::time::Instant;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

/// What the service does with each attempt.
#[derive(Clone, Copy)]
enum Does {
    Breaks,
    Hangs,
    /// Answers with this status, and perhaps this header.
    Answers(u16, Option<(&'static str, &'static str)>),
    Refuses(std::io::ErrorKind),
}

/// Sends a request to a service. The service answers each attempt as the next element of `does` says, and
/// repeats the last element after that. Also returns the keys that the service saw.
async fn sent(
    policy: Policy,
    does: &[Does],
    request: Request<String>,
) -> (Result<u16, BoxError>, Vec<String>) {
    let (keys, does) = (Arc::new(Mutex::new(Vec::new())), does.to_vec());
    let seen = keys.clone();
    let service = service_fn(move |request: Request<String>| {
        let key = request.headers().get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        let attempt = {
            let mut seen = seen.lock().unwrap();
            seen.push(key.unwrap_or_default());
            seen.len()
        };
        let does = does[attempt.min(does.len()) - 1];
        async move {
            match does {
                Does::Breaks => Err(BoxError::from("the connection broke")),
                Does::Hangs => std::future::pending().await,
                Does::Refuses(kind) => Err(BoxError::from(std::io::Error::new(kind, "refused"))),
                Does::Answers(status, header) => {
                    let mut response = Response::builder().status(status);
                    if let Some((name, value)) = header {
                        response = response.header(name, value);
                    }
                    Ok(response.body(()).unwrap())
                }
            }
        }
    });
    let answer = IdempotencyClientLayer::new(policy).layer(service).oneshot(request).await;
    let keys = keys.lock().unwrap().clone();
    (answer.map(|answer| answer.status().as_u16()), keys)
}

fn post() -> Request<String> {
    Request::post("http://example.com/payments").body("19.99".to_owned()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_key_is_kept_over_broken_connections_timeouts_and_refusals() {
    let does = [
        Does::Breaks,
        Does::Hangs,
        Does::Answers(503, None),
        Does::Answers(409, Some(("Retry-After", "1"))),
        Does::Answers(500, None),
        Does::Answers(201, None),
    ];
    let begin = Instant::now();
    let (answer, keys) = sent(Policy::new(), &does, post()).await;
    assert_eq!((answer.unwrap(), keys.len()), (201, 6));
    assert!(
        begin.elapsed() >= Duration::from_secs(31),
        "the attempt that hangs, and what the server asks for"
    );
    assert!(keys.iter().all(|key| *key == keys[0]) && keys[0].len() == 34, "{keys:?}");
}

/// A service that answers 503 at first. Then its `poll_ready` fails once. After that, it answers 200.
#[derive(Clone)]
struct Recovers(Arc<Mutex<u32>>);

impl tower::Service<Request<String>> for Recovers {
    type Response = Response<()>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<()>, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        let polls = *self.0.lock().unwrap();
        *self.0.lock().unwrap() += 1;
        std::task::Poll::Ready(if polls == 1 { Err("not connected".into()) } else { Ok(()) })
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        let status = if *self.0.lock().unwrap() == 1 { 503 } else { 200 };
        std::future::ready(Ok(Response::builder().status(status).body(()).unwrap()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_ready_for_a_retry_has_ended_one_attempt() {
    let layer = IdempotencyClientLayer::new(Policy::new().attempts(3));
    let answer = layer.layer(Recovers(Arc::default())).oneshot(post()).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let (answer, keys) = sent(Policy::new().attempts(4), &[Does::Breaks], post()).await;
    assert_eq!((answer.unwrap_err().to_string().as_str(), keys.len()), ("the connection broke", 4));
    let (answer, keys) = sent(Policy::new().attempts(2), &[Does::Hangs], post()).await;
    assert_eq!(answer.unwrap_err().to_string(), "the server did not answer within 30s");
    assert_eq!(keys.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_program_gives_is_sent_and_other_methods_pass_untouched() {
    let ok = [Does::Answers(200, None)];
    let mut named = post();
    named.extensions_mut().insert(Key::new("order-42"));
    assert_eq!(sent(Policy::new(), &ok, named).await.1, ["\"order-42\""]);
    let mut own = post();
    own.headers_mut().insert("idempotency-key", "own".parse().unwrap());
    assert_eq!(sent(Policy::new(), &ok, own).await.1, ["own"]);
    let random = [sent(Policy::new(), &ok, post()).await.1, sent(Policy::new(), &ok, post()).await.1];
    assert_ne!(random[0], random[1], "each request has a key of its own");
    let get = Request::get("http://example.com/payments").body(String::new()).unwrap();
    let (answer, keys) = sent(Policy::new(), &[Does::Answers(502, None)], get).await;
    assert_eq!((answer.unwrap(), keys), (502, vec![String::new()]));
    let mut put = Request::put("http://example.com/payments").body(String::new()).unwrap();
    put.extensions_mut().insert(Key::new("order-42"));
    assert_eq!(sent(Policy::new(), &[Does::Breaks, ok[0]], put).await.1, ["\"order-42\""; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_replayed_is_final_and_what_stripe_says_decides() {
    for (status, name, value, attempts) in [
        (500, "Idempotency-Replayed", "true", 1),
        (500, "Idempotent-Replayed", "true", 1),
        (500, "Idempotent-Replayed", "false", 2),
        (500, "Stripe-Should-Retry", "false", 1),
        (409, "Stripe-Should-Retry", "true", 2),
        (400, "Stripe-Should-Retry", "true", 2),
    ] {
        let does = [Does::Answers(status, Some((name, value)))];
        let (answer, keys) = sent(Policy::new().attempts(2), &does, post()).await;
        assert_eq!((answer.unwrap(), keys.len()), (status, attempts), "{status} {name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_of_stripe_is_a_request_in_flight() {
    let does = [Does::Answers(409, None), Does::Answers(409, None), Does::Answers(200, None)];
    let (answer, keys) = sent(Policy::stripe(), &does, post()).await;
    assert_eq!((answer.unwrap(), keys.len()), (200, 3));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_refused_is_not_a_broken_connection() {
    use std::io::ErrorKind::{ConnectionReset, InvalidData};
    for (kind, attempts) in [(InvalidData, 1), (ConnectionReset, 3)] {
        let (answer, keys) = sent(Policy::new().attempts(3), &[Does::Refuses(kind)], post()).await;
        assert_eq!((answer.is_err(), keys.len()), (true, attempts), "{kind:?}");
    }
    let (_, keys) = sent(Policy::new().retry_error(|_| false), &[Does::Breaks], post()).await;
    assert_eq!(keys.len(), 1);
}
