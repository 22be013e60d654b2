//! One logical request: its key, its attempts, and the pauses between them.

use std::error::Error;
use std::time::{Duration, SystemTime};
use std::{io, iter};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::{Instant, timeout};

use crate::policy::{Attempts, Policy, Verdict};
use crate::{Key, key};

/// The header that a request still needs; `None` if it already has one. `authority` and `path` are those of its URL.
pub(crate) fn missing_header(
    policy: &Policy,
    method: &Method,
    headers: &HeaderMap,
    extensions: &Extensions,
    (authority, path): (&str, &str),
) -> Result<Option<(HeaderName, HeaderValue)>, http::Error> {
    if headers.contains_key(&policy.header) {
        return Ok(None);
    }
    // Without user and password, which may change between two attempts of a body and are secret.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let key = Key::of(extensions.get::<Key>(), &format!("{method} {host}{path}"));
    Ok(Some((policy.header.clone(), key::header(&key)?)))
}

/// The parts of an answer that decide about a retry.
pub(crate) trait Answer {
    fn status(&self) -> StatusCode;
    fn headers(&self) -> &HeaderMap;
}

/// An attempt took too long.
#[derive(Debug)]
pub(crate) struct TimedOut;

/// How an attempt ended.
pub(crate) type Ended<A, E> = Result<Result<A, E>, TimedOut>;

/// The attempts of one request.
pub(crate) struct Retrying<'a> {
    policy: &'a Policy,
    attempts: Attempts,
    begin: Instant,
    number: u32,
}

impl<'a> Retrying<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        Self { policy, attempts: policy.begin(), begin: Instant::now(), number: 0 }
    }

    /// Makes one attempt.
    pub(crate) async fn attempt<A, E>(&mut self, sent: impl Future<Output = Result<A, E>>) -> Ended<A, E> {
        self.number += 1;
        timeout(self.policy.attempt_timeout, sent).await.map_err(|_| TimedOut)
    }

    /// How long to wait before the next attempt; `None` if the request must not be sent again. `is_broken` says whether
    /// an error means that the connection broke, if the policy does not say it.
    pub(crate) fn again<A: Answer, E>(
        &mut self,
        ended: &Ended<A, E>,
        is_broken: impl Fn(&E) -> bool,
    ) -> Option<Duration> {
        let (status, not_before) = match ended {
            Ok(Ok(answer)) => {
                match self.policy.verdict(answer.status(), answer.headers(), SystemTime::now()) {
                    Verdict::Final => return None,
                    Verdict::Again(not_before) => (Some(answer.status().as_u16()), not_before),
                }
            }
            Ok(Err(error)) if !is_broken(error) => return None,
            Ok(Err(_)) | Err(TimedOut) => (None, None),
        };
        let (attempt, pause) = (self.number, self.attempts.pause(self.begin.elapsed(), not_before));
        match pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)) {
            Some(pause_ms) => tracing::debug!(
                target: "idem",
                event = "request_retried",
                attempt,
                status,
                pause_ms,
                "a request is sent again under its key"
            ),
            None => tracing::warn!(
                target: "idem",
                event = "request_given_up",
                attempt,
                status,
                "a request is not sent again"
            ),
        }
        pause
    }
}

/// Whether the TLS library refused what the other side sent, such as a certificate. The next attempt gets the same.
pub(crate) fn is_refused_by_tls(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
    })
}
