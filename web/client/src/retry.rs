//! One logical request: its key, its attempts, and the pauses between them.

use std::error::Error;
use std::time::{Duration, SystemTime};
use std::{io, iter};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use crate::policy::{Policy, Verdict};
use crate::{Key, key};

/// Whether a request gets a key and may be sent again.
pub(crate) fn covers(method: &Method, extensions: &Extensions) -> bool {
    matches!(*method, Method::POST | Method::PATCH) || extensions.get::<Key>().is_some()
}

/// The key header to add to a request; `None` if the request already has one. `authority` and `path` are
/// parts of the request's URL.
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
    // User and password are left out, because they are secret, and because they may differ when an idempotent
    // body runs again.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let key = Key::of(extensions.get::<Key>(), &format!("{method} {host}{path}"));
    Ok(Some((policy.header.clone(), key::header(&key)?)))
}

/// The attempts of one request.
pub(crate) struct Retrying<'a> {
    policy: &'a Policy,
    pauses: ExponentialBackoff,
    begin: Instant,
    attempts: u32,
}

impl<'a> Retrying<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        let (first, longest) = policy.pauses;
        let pauses = ExponentialBuilder::default().with_min_delay(first).with_max_delay(longest);
        let pauses = pauses.without_max_times().with_jitter().build();
        Self { policy, pauses, begin: Instant::now(), attempts: 0 }
    }

    /// How long to wait before the next attempt; `None` if the request must not be sent again. `answer` is
    /// the last attempt's answer; `None` if the connection broke or the attempt took too long.
    pub(crate) fn again(&mut self, answer: Option<(StatusCode, &HeaderMap)>) -> Option<Duration> {
        let not_before = match answer {
            Some((status, headers)) => match self.policy.verdict(status, headers, SystemTime::now()) {
                Verdict::Final => return None,
                Verdict::Again(not_before) => not_before,
            },
            None => None,
        };
        let pause = self.pause(self.begin.elapsed(), not_before);
        let (attempt, status) = (self.attempts, answer.map(|(status, _)| status.as_u16()));
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

    /// The pause after an attempt; `None` if no further attempt is allowed. `so_far` is the time since the
    /// first attempt began. `not_before` is the pause that the server asks for.
    fn pause(&mut self, so_far: Duration, not_before: Option<Duration>) -> Option<Duration> {
        self.attempts += 1;
        let patience_left = self.policy.patience.saturating_sub(so_far);
        let own = self.pauses.next().unwrap_or(self.policy.pauses.1);
        let pause = match not_before {
            // Because of the jitter, the clients that a server has refused do not all repeat their requests
            // in the same second.
            Some(time) if time <= patience_left => {
                own.max(time.saturating_add(time.mul_f64(rand::random::<f64>() / 4.0)).min(patience_left))
            }
            Some(time) => time,
            None => own,
        };
        (self.attempts < self.policy.attempts && pause <= patience_left).then_some(pause)
    }
}

/// Whether the TLS library refused what the server sent, such as a certificate. The next attempt would fail
/// in the same way.
pub(crate) fn is_refused_by_tls(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pause_is_shorter_than_the_server_asks_and_none_ends_after_the_patience() {
        let policy = Policy::new().attempts(3).patience(Duration::from_secs(10));
        let time = Duration::from_secs(4);
        let mut retrying = Retrying::new(&policy);
        assert_eq!(retrying.pause(Duration::from_secs(6), Some(time)), Some(time), "jitter has no room");
        assert_eq!(retrying.pause(Duration::from_secs(7), Some(time)), None);
        let first = || Retrying::new(&policy).pause(Duration::ZERO, Some(time)).unwrap();
        let pauses: Vec<_> = (0..50).map(|_| first()).collect();
        assert!(pauses.iter().all(|pause| (time..=Duration::from_secs(5)).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
        let mut retrying = Retrying::new(&policy);
        assert!(retrying.pause(Duration::ZERO, None).unwrap() >= Duration::from_millis(100));
        assert!(retrying.pause(Duration::ZERO, None).is_some());
        assert_eq!(retrying.pause(Duration::ZERO, None), None, "the third attempt was the last");
    }
}
