//! The problems (RFC 9457) in the answers of a server with idempotency keys.

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// Why a request was refused, from the end of the problem's `type`. The names are those of `idem::http`.
/// Problems of other servers are recognized if they use the same names. What the variants say about retries
/// does not apply to a request whose body cannot be cloned: the client sends it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Problem {
    /// 400: the server requires a key.
    KeyMissing,
    /// 400: the header has no key that the server accepts.
    KeyMalformed,
    /// 409: the request is being processed. The client has sent it again until a limit of the policy was
    /// reached.
    InFlight,
    /// 422: the key was used for another request. This is a mistake of the program: sending the request again
    /// gives the same answer.
    KeyReused,
    /// 409: the request was processed, and its response is not kept.
    ResponseNotStored,
    /// 409: the request may have been processed. An operator of the server must find out whether it was.
    InDoubt,
    /// 503: the server cannot check keys now. The client has sent the request again until a limit of the
    /// policy was reached.
    StoreUnavailable,
    /// 503: the server is busy. The client has sent the request again until a limit of the policy was
    /// reached.
    TooManyRunning,
    /// 500: the server began to process the request and failed. The client has sent the request again until a
    /// limit of the policy was reached.
    HandlerFailed,
}

impl Problem {
    /// The problem in an `application/problem+json` body; `None` if it is another problem or no problem.
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
        let name: StrDeserializer<'_, Error> = r#type.rsplit(['/', ':', '#']).next()?.into_deserializer();
        Self::deserialize(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn a_problem_is_known_by_the_end_of_its_type_whatever_comes_before() {
        let of = |kind: &str| Problem::from_json(format!(r#"{{"type":"{kind}","title":"t"}}"#).as_bytes());
        for (kind, problem) in [
            ("key-missing", Problem::KeyMissing),
            ("https://example.com/problems/in-flight", Problem::InFlight),
            ("urn:example:too-many-running", Problem::TooManyRunning),
            ("https://example.com/p#response-not-stored", Problem::ResponseNotStored),
        ] {
            assert_eq!(of(kind), Some(problem));
        }
        assert_eq!(of("about:blank"), None);
        assert_eq!(Problem::from_json(b"not JSON"), None);
    }
}
