//! The problems (RFC 9457) that a server with idempotency keys answers.

use serde::Deserialize;

/// Why a request was refused, as the end of its problem's `type` names it. The names are those of `idem::http`; other servers that follow
/// the same draft are understood where they use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// 400: the server requires a key.
    KeyMissing,
    /// 400: the header holds no key that the server takes.
    KeyMalformed,
    /// 409: the request is being processed. It was sent again until the patience ended.
    InFlight,
    /// 422: the key was used for another request. A mistake of the program: sending it again gives the same.
    KeyReused,
    /// 409: it was processed, and its response is not kept. It is done.
    ResponseNotStored,
    /// 409: it may have been processed; an operator of the server must find out.
    InDoubt,
    /// 503: the server cannot check keys now. It was sent again until the patience ended.
    StoreUnavailable,
    /// 503: the server is busy. It was sent again until the patience ended.
    TooManyRunning,
    /// 500: the server began with it and failed. It was sent again until the patience ended.
    HandlerFailed,
}

impl Problem {
    const NAMES: [(&str, Self); 9] = [
        ("key-missing", Self::KeyMissing),
        ("key-malformed", Self::KeyMalformed),
        ("in-flight", Self::InFlight),
        ("key-reused", Self::KeyReused),
        ("response-not-stored", Self::ResponseNotStored),
        ("in-doubt", Self::InDoubt),
        ("store-unavailable", Self::StoreUnavailable),
        ("too-many-running", Self::TooManyRunning),
        ("handler-failed", Self::HandlerFailed),
    ];

    /// The problem in the body of an `application/problem+json`; `None` where it is another, or none.
    ///
    /// ```
    /// use idem_client::Problem;
    ///
    /// let body = br#"{"type":"https://api.example.com/problems/in-doubt","status":409}"#;
    /// assert_eq!(Problem::from_json(body), Some(Problem::InDoubt));
    /// ```
    #[must_use]
    pub fn from_json(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Body {
            r#type: String,
        }
        let Body { r#type } = serde_json::from_slice(body).ok()?;
        let name = r#type.rsplit(['/', ':', '#']).next()?;
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, problem)| problem)
    }

    /// Whether the request was done, or may have been: it must not be sent under another key.
    #[must_use]
    pub const fn may_be_done(self) -> bool {
        !matches!(self, Self::KeyMissing | Self::KeyMalformed | Self::KeyReused)
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn a_problem_is_known_by_the_end_of_its_type_whatever_comes_before() {
        let of = |kind: &str| Problem::from_json(format!(r#"{{"type":"{kind}","title":"t"}}"#).as_bytes());
        for (name, problem) in Problem::NAMES {
            for base in ["", "https://example.com/problems/", "urn:example:", "https://example.com/p#"] {
                assert_eq!(of(&format!("{base}{name}")), Some(problem));
            }
        }
        assert_eq!(of("about:blank"), None);
        assert_eq!(Problem::from_json(b"not JSON"), None);
    }
}
