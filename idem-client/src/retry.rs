//! One logical request: its key, its attempts, and the pauses between them.

use std::time::{Duration, SystemTime};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::{Instant, timeout};

use crate::policy::{Attempts, Policy, Verdict, verdict};
use crate::{Key, key};

/// The header that a request still needs; `None` if it already has one.
pub(crate) fn missing_header(
    policy: &Policy,
    method: &Method,
    headers: &HeaderMap,
    extensions: &Extensions,
    place: &str,
) -> Result<Option<(HeaderName, HeaderValue)>, http::Error> {
    if headers.contains_key(&policy.header) {
        return Ok(None);
    }
    let key = Key::of(extensions.get::<Key>(), method.as_str(), place);
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
pub(crate) struct Retrying {
    attempts: Attempts,
    begin: Instant,
    attempt_timeout: Duration,
    number: u32,
}

impl Retrying {
    pub(crate) fn new(policy: &Policy) -> Self {
        let (attempts, attempt_timeout) = (policy.begin(), policy.attempt_timeout);
        Self { attempts, begin: Instant::now(), attempt_timeout, number: 0 }
    }

    /// Makes one attempt.
    pub(crate) async fn attempt<A, E>(&mut self, sent: impl Future<Output = Result<A, E>>) -> Ended<A, E> {
        self.number += 1;
        timeout(self.attempt_timeout, sent).await.map_err(|_| TimedOut)
    }

    /// How long to wait before the next attempt; `None` if the request must not be sent again.
    pub(crate) fn again<A: Answer, E>(&mut self, ended: &Ended<A, E>) -> Option<Duration> {
        let (status, asked) = match ended {
            Ok(Ok(answer)) => match verdict(answer.status(), answer.headers(), SystemTime::now()) {
                Verdict::Final => return None,
                Verdict::Again(asked) => (Some(answer.status().as_u16()), asked),
            },
            Ok(Err(_)) | Err(TimedOut) => (None, None),
        };
        let (attempt, pause) = (self.number, self.attempts.pause(self.begin.elapsed(), asked));
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
