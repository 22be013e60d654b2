//! Tests of the middleware for reqwest against servers on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Extensions;
use idem_client::{IdempotencyMiddleware, Policy};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

/// A middleware inside the tested one. It counts attempts, and fails if `fails` is set.
#[derive(Clone, Default)]
struct Inside {
    attempts: Arc<AtomicUsize>,
    fails: bool,
}

#[async_trait::async_trait]
impl Middleware for Inside {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<reqwest::Response> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        if self.fails {
            return Err(Error::middleware(std::io::Error::other("no token")));
        }
        next.run(request, extensions).await
    }
}

/// A server that gives this answer to each request. Also returns the heads of the requests that it saw.
async fn server(answer: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, heads) =
        (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mutex<Vec<String>>>::default());
    let seen = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            seen.lock().unwrap().push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, heads)
}

/// Posts to this URL, and returns the answer and the number of attempts.
async fn post(policy: Policy, fails: bool, url: &str) -> (Result<reqwest::Response>, usize) {
    let inside = Inside { fails, ..Inside::default() };
    let client = reqwest::Client::builder().redirect(idem_client::redirects()).build().unwrap();
    let client =
        ClientBuilder::new(client).with(IdempotencyMiddleware::new(policy)).with(inside.clone()).build();
    let answer = client.post(url).send().await;
    (answer, inside.attempts.load(Ordering::SeqCst))
}

fn quick() -> Policy {
    Policy::new().pauses(std::time::Duration::from_millis(1), std::time::Duration::from_millis(1)).attempts(3)
}

#[tokio::test]
async fn only_an_error_that_may_go_better_is_a_reason_to_send_again() {
    let (answer, attempts) = post(quick(), true, "http://127.0.0.1:1/").await;
    assert_eq!((answer.unwrap_err().to_string().as_str(), attempts), ("no token", 1));
    let (loops, _) =
        server("HTTP/1.1 307 x\r\nlocation: /\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".into())
            .await;
    let (answer, attempts) = post(quick(), false, &loops).await;
    assert!(matches!(answer, Err(Error::Reqwest(error)) if error.is_redirect()));
    assert_eq!(attempts, 1);
    let (answer, attempts) = post(quick(), false, "ftp://127.0.0.1/").await;
    assert!(answer.is_err());
    assert_eq!(attempts, 1);
    // A bound port without a listener, so connecting fails.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = taken.local_addr().unwrap();
    let (answer, attempts) = post(quick(), false, &format!("http://{closed}")).await;
    assert!(matches!(answer, Err(Error::Reqwest(error)) if error.is_connect()));
    assert_eq!(attempts, 3);
    let never = quick().retry_error(|_| false);
    assert_eq!(post(never, false, &format!("http://{closed}")).await.1, 1);
}

#[tokio::test]
async fn a_redirect_to_another_host_takes_no_key_there_and_is_the_answer() {
    let (other, seen) = server("HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n".into()).await;
    let redirect = format!("HTTP/1.1 307 x\r\nlocation: {other}/\r\ncontent-length: 0\r\n\r\n");
    let (url, heads) = server(redirect).await;
    let (answer, attempts) = post(quick(), false, &url).await;
    assert_eq!((answer.unwrap().status().as_u16(), attempts), (307, 1));
    assert!(heads.lock().unwrap()[0].contains("\r\nidempotency-key: \""));
    assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
}

#[tokio::test]
async fn an_answer_that_is_larger_than_the_limit_is_not_read_into_memory() {
    let policy = || quick().max_answer_bytes(4);
    let (fits, _) = server("HTTP/1.1 200 x\r\ncontent-length: 4\r\n\r\nabcd".into()).await;
    assert_eq!(post(policy(), false, &fits).await.0.unwrap().bytes().await.unwrap(), "abcd");
    // If an answer is larger than the limit, and the server declares its length, the program gets the answer
    // as a stream.
    let (large, _) = server("HTTP/1.1 200 x\r\ncontent-length: 5\r\n\r\nabcde".into()).await;
    assert_eq!(post(policy(), false, &large).await.0.unwrap().bytes().await.unwrap(), "abcde");
    let (endless, _) = server("HTTP/1.1 200 x\r\nconnection: close\r\n\r\nabcde".into()).await;
    let (answer, attempts) = post(policy(), false, &endless).await;
    assert_eq!(answer.unwrap_err().to_string(), "the answer is larger than 4 bytes");
    assert_eq!(attempts, 1);
}
