//! The middleware for reqwest.

use std::io;
use std::mem::take;
use std::time::Duration;

use ::reqwest::{Request, Response, ResponseBuilderExt as _, redirect};
use http::Extensions;
use http::header::CONTENT_TYPE;
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::{sleep, timeout};

use crate::Policy;
use crate::retry::{Retrying, covers, is_refused_by_tls, missing_header};

/// Sets the header of the key on each `POST`, each `PATCH` and each other request that has a
/// [`Key`](crate::Key) among its extensions. If such a request already has this header, the header stays
/// unchanged. Repeats these requests until there is a final answer. Pass this middleware to
/// `reqwest_middleware::ClientBuilder::with`. See the [crate](crate).
///
/// Add it before middleware that must see every attempt, such as tracing and signatures. It replaces
/// reqwest-retry.
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

#[async_trait::async_trait]
impl Middleware for IdempotencyMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if !covers(request.method(), extensions) {
            return next.run(request, extensions).await;
        }
        let target = (request.url().authority(), request.url().path());
        let header = missing_header(&self.policy, request.method(), request.headers(), extensions, target);
        if let Some((name, value)) = header.map_err(Error::middleware)? {
            request.headers_mut().insert(name, value);
        }
        let mut retrying = Retrying::new(&self.policy);
        loop {
            let spare = request.try_clone();
            let answered = async {
                whole(next.clone().run(request, extensions).await?, self.policy.max_answer_bytes).await
            };
            let ended = timeout(self.policy.attempt_timeout, answered).await;
            let pause = match &ended {
                _ if spare.is_none() => None,
                Ok(Ok(response)) => retrying.again(Some((response.status(), response.headers()))),
                Ok(Err(error)) if !self.policy.is_broken(error, is_broken(error)) => None,
                _ => retrying.again(None),
            };
            let (Some(spare), Some(pause)) = (spare, pause) else {
                return ended.unwrap_or_else(|_| Err(timed_out(self.policy.attempt_timeout)));
            };
            drop(ended);
            sleep(pause).await;
            request = spare;
        }
    }
}

fn timed_out(patience: Duration) -> Error {
    let text = format!("the server did not answer within {patience:?}");
    Error::middleware(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Whether the connection broke. Any other error would occur again, such as an error of the URL, of a
/// redirect or of other middleware.
fn is_broken(error: &Error) -> bool {
    match error {
        Error::Reqwest(error) if error.is_connect() => !is_refused_by_tls(error),
        Error::Reqwest(error) => {
            error.is_timeout() || error.is_request() || error.is_body() || error.is_decode()
        }
        Error::Middleware(_) => false,
    }
}

/// The response with its body read. The body is not read if it may never end, or if the server declares a
/// length above `limit`. Fails if the body breaks off, or is larger than `limit` without a declared length.
async fn whole(mut response: Response, limit: usize) -> Result<Response> {
    let kind = response.headers().get(CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_stream || response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(response);
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > limit {
            return Err(Error::middleware(io::Error::other(format!(
                "the answer is larger than {limit} bytes"
            ))));
        }
        body.extend_from_slice(&piece);
    }
    let whole = http::Response::builder().url(response.url().clone()).body(body);
    let mut whole = whole.map_err(Error::middleware)?;
    (*whole.status_mut(), *whole.version_mut()) = (response.status(), response.version());
    *whole.headers_mut() = take(response.headers_mut());
    whole.extensions_mut().extend(take(response.extensions_mut()));
    Ok(Response::from(whole))
}

/// The policy for the redirects of a client with keys: it follows only redirects within one origin. Pass it
/// to `reqwest::ClientBuilder::redirect`.
///
/// reqwest sends the headers of a request, including the key, along with each redirect. Whoever has the key
/// of a request can read its response. So the client does not follow a redirect to another scheme, host or
/// port, but returns it as the answer.
///
/// ```
/// let client = reqwest::Client::builder().redirect(idem_client::redirects()).build()?;
/// # let _ = client;
/// # Ok::<(), reqwest::Error>(())
/// ```
#[must_use]
pub fn redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let is_within = attempt.previous().last().is_none_or(|from| from.origin() == attempt.url().origin());
        if is_within { redirect::Policy::default().redirect(attempt) } else { attempt.stop() }
    })
}
