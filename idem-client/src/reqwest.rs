//! The middleware for reqwest.

use std::io;
use std::time::Duration;

use ::reqwest::{Request, Response, ResponseBuilderExt as _};
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, StatusCode};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::sleep;

use crate::Policy;
use crate::retry::{Answer, Retrying, TimedOut, missing_header};

/// Sends each `POST` and `PATCH` with a key, and repeats it until there is a final answer. For
/// `reqwest_middleware::ClientBuilder::with`. See the [crate](crate).
///
/// Put it outside of middleware that must see every attempt, such as tracing and signatures. It replaces reqwest-retry.
#[derive(Clone, Debug, Default)]
pub struct IdempotencyMiddleware {
    policy: Policy,
}

impl IdempotencyMiddleware {
    /// A middleware with this policy.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

impl Answer for Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

#[async_trait::async_trait]
impl Middleware for IdempotencyMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if !self.policy.covers(request.method()) {
            return next.run(request, extensions).await;
        }
        let place = format!("{}{}", request.url().authority(), request.url().path());
        let header = missing_header(&self.policy, request.method(), request.headers(), extensions, &place);
        if let Some((name, value)) = header.map_err(Error::middleware)? {
            request.headers_mut().insert(name, value);
        }
        let mut retrying = Retrying::new(&self.policy);
        loop {
            let spare = request.try_clone();
            let answered = async {
                let response = next.clone().run(request, extensions).await?;
                if self.policy.streamed || is_stream(&response) {
                    Ok(response)
                } else {
                    whole(response).await
                }
            };
            let ended = retrying.attempt(answered).await;
            let again = spare.and_then(|spare| Some((spare, retrying.again(&ended)?)));
            let Some((spare, pause)) = again else {
                return ended.unwrap_or_else(|TimedOut| Err(timed_out(self.policy.attempt_timeout)));
            };
            drop(ended);
            sleep(pause).await;
            request = spare;
        }
    }
}

fn timed_out(timeout: Duration) -> Error {
    let text = format!("the server did not answer within {timeout:?}");
    Error::middleware(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Whether the body may never end.
fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// The response with its body read. Fails if the body breaks off.
async fn whole(mut response: Response) -> Result<Response> {
    let mut head = http::Response::builder().status(response.status()).version(response.version());
    if let Some(headers) = head.headers_mut() {
        *headers = std::mem::take(response.headers_mut());
    }
    if let Some(extensions) = head.extensions_mut() {
        *extensions = std::mem::take(response.extensions_mut());
    }
    let head = head.url(response.url().clone());
    let body = response.bytes().await?;
    Ok(Response::from(head.body(body).map_err(Error::middleware)?))
}
