//! Decides when a request is sent again.

use std::error::Error;
use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};

/// The headers that mark a recorded answer: the header of `idem::http`, and the header of Stripe.
const REPLAYED: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-replayed"), HeaderName::from_static("idempotent-replayed")];

/// The header in which Stripe says whether sending the request again may help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// How the key is sent, and how often and how long a request is sent again.
///
/// With the defaults, retries last longer than a restart of the server. They also last longer than the
/// default lease (30 s) of a request that a dead process left in flight.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) header: HeaderName,
    pub(crate) attempts: u32,
    pub(crate) patience: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) max_answer_bytes: usize,
    conflict_is_in_flight: bool,
    retry_error: Option<fn(&(dyn Error + 'static)) -> bool>,
    pub(crate) pauses: (Duration, Duration),
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            header: HeaderName::from_static("idempotency-key"),
            attempts: 20,
            patience: Duration::from_secs(120),
            attempt_timeout: Duration::from_secs(30),
            max_answer_bytes: 8 * 1024 * 1024,
            conflict_is_in_flight: false,
            retry_error: None,
            pauses: (Duration::from_millis(100), Duration::from_secs(10)),
        }
    }
}

impl Policy {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults for Stripe: each 409 means that the first request is still in flight. So the request is
    /// sent again, even if the answer has no `Retry-After`.
    #[must_use]
    pub fn stripe() -> Self {
        Self { conflict_is_in_flight: true, ..Self::default() }
    }

    /// The header for the key; `Idempotency-Key` unless set (PayPal uses `PayPal-Request-Id`).
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// How many times a request is sent at most; 20 unless set. Zero counts as 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How long after its first attempt a request may be sent again; 120 s unless set. If the next pause
    /// would end after that time, the client does not wait. Instead, it returns the last answer or error,
    /// even if a `Retry-After` asks for that pause.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long one attempt may take until its answer has arrived; 30 s unless set. A longer attempt counts
    /// as a broken connection.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// The largest answer that the middleware for reqwest reads into memory, in bytes; 8 MiB unless set. The
    /// middleware reads the whole body of every answer except a `text/event-stream`. So if a body breaks off,
    /// the middleware can send the request again. If an answer is larger than this limit and the server
    /// declares its length, the answer is returned unread. If the server does not declare the length, the
    /// larger answer is an error.
    #[must_use]
    pub const fn max_answer_bytes(mut self, bytes: usize) -> Self {
        self.max_answer_bytes = bytes;
        self
    }

    /// Sets the function that decides whether an error of the inner client is a reason to send the request
    /// again.
    ///
    /// Unless set, the middleware for reqwest sends the request again after an error while connecting,
    /// sending or reading. It does not do so after an error of other middleware, of the URL, of redirects or
    /// of a certificate. The tower layer sends the request again after every error except an error of a
    /// certificate.
    #[must_use]
    pub const fn retry_error(mut self, is_broken: fn(&(dyn Error + 'static)) -> bool) -> Self {
        self.retry_error = Some(is_broken);
        self
    }

    /// The first pause, and the limit up to which pauses double; 100 ms and 10 s unless set. Jitter lengthens
    /// each pause by a random time, at most by the pause itself. If the server asks for a longer pause,
    /// jitter lengthens that pause by at most a quarter.
    #[must_use]
    pub const fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.pauses = (first, longest);
        self
    }

    /// This error is a reason to send the request again. Returns `default` if `retry_error` is not set.
    pub(crate) fn is_broken(&self, error: &(dyn Error + 'static), default: bool) -> bool {
        self.retry_error.map_or(default, |is_broken| is_broken(error))
    }
}

/// What an answer means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer is final.
    Final,
    /// The request must be sent again, after at least this time if the server gives one.
    Again(Option<Duration>),
}

impl Policy {
    /// What this answer means. A date in `Retry-After` is compared with the answer's `Date`, or with `now` if
    /// the answer has no `Date`.
    pub(crate) fn verdict(&self, status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Verdict {
        // `Retry-After` refers to the server's clock, which `Date` shows.
        let date = headers.get(DATE).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
        let now = date.unwrap_or(now);
        let not_before = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now));
        let is = |name: &HeaderName, text: &str| headers.get(name).is_some_and(|value| value == text);
        if is(&SHOULD_RETRY, "true") {
            return Verdict::Again(not_before);
        }
        // A recorded answer remains the answer for this key, even a 500.
        if is(&SHOULD_RETRY, "false") || REPLAYED.iter().any(|name| is(name, "true")) {
            return Verdict::Final;
        }
        match status.as_u16() {
            // A 409 with `Retry-After` (with Stripe, every 409) says that the first request is in flight.
            // After any other 409, waiting does not help.
            409 if not_before.is_some() || self.conflict_is_in_flight => Verdict::Again(not_before),
            408 | 425 | 429 | 500 | 502 | 503 | 504 => Verdict::Again(not_before),
            _ => Verdict::Final,
        }
    }
}

fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::header::{DATE, RETRY_AFTER};
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::{Policy, Verdict};

    fn of(status: u16, retry_after: Option<&'static str>, date: Option<&'static str>) -> Verdict {
        let headers = [(RETRY_AFTER, retry_after), (DATE, date)].into_iter();
        let headers: HeaderMap =
            headers.filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?)))).collect();
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        Policy::new().verdict(StatusCode::from_u16(status).unwrap(), &headers, now)
    }

    #[test]
    fn what_may_go_better_is_sent_again_and_what_may_not_is_the_answer() {
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert_eq!(of(status, None, None), Verdict::Again(None), "{status}");
        }
        for status in [200, 201, 302, 400, 401, 402, 404, 409, 413, 422, 501, 505] {
            assert_eq!(of(status, None, None), Verdict::Final, "{status}");
        }
        // A 422 says that the request is wrong. So the request is not sent again, even if the server sends
        // `Retry-After`.
        assert_eq!(of(422, Some("1"), None), Verdict::Final);
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date_by_the_clock_of_the_server_that_wrote_it() {
        let seconds = |seconds| Verdict::Again(Some(Duration::from_secs(seconds)));
        assert_eq!(of(409, Some("30"), None), seconds(30));
        assert_eq!(of(503, Some("Sun, 06 Nov 1994 08:50:37 GMT"), None), seconds(60));
        assert_eq!(of(503, Some("Sun, 06 Nov 1994 08:00:00 GMT"), None), seconds(0));
        assert_eq!(of(503, Some("soon"), None), Verdict::Again(None));
        assert_eq!(of(409, Some("soon"), None), Verdict::Final);
        let date = Some("Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(of(503, Some("Sun, 06 Nov 1994 08:50:37 GMT"), date), seconds(30));
    }
}
