//! The fingerprint of a request, which must not change under one key.
//!
//! Owns the choice of the parts that count, and their framing. Because of the framing, the fingerprint
//! changes if bytes move from one part to the next.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::Uri;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::uri::Authority;
use sha2::{Digest, Sha256};

use super::json;
use super::multipart;
use idem_core::protocol::Fingerprint;

/// The first input of every fingerprint. It distinguishes a request's fingerprint from the fingerprint of
/// anything else, such as a function's arguments.
const KIND: &[u8] = b"idem http request 3";

type Route = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Which parts of a request must be the same under one key: method, path, query, content type and
/// body, unless parts are left out.
///
/// The path is the path of the request's URI, not the pattern of its route. With the feature `axum`, it is
/// the path that the client sent, even if a `Router::nest` has removed a prefix. In a JSON body
/// (`application/json`, `+json`), white space and the order of members do not matter under three conditions.
/// The JSON is unambiguous (no two members of one name, no lone surrogate). All its numbers are integers of
/// 64 bits, unless [`without_member`](Self::without_member) is used. It has at most 50,000 values. For a
/// `multipart/*` body, the parts count, but not the boundary. For any other body, the bytes count.
///
/// ```
/// use idem::http::RequestFingerprint;
///
/// let fingerprint = RequestFingerprint::new().without_member("/client/sent_at").without_query();
/// # let _ = fingerprint;
/// ```
#[derive(Clone, Default)]
pub struct RequestFingerprint {
    is_empty: bool,
    route: Option<Route>,
    without_query: bool,
    without_body: bool,
    headers: Vec<HeaderName>,
    left_out: Vec<String>,
}

impl RequestFingerprint {
    /// All parts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No part: requests with the same key always count as the same request. Use this for keys that identify
    /// one request by themselves, such as the id of a webhook's delivery.
    #[must_use]
    pub fn none() -> Self {
        Self { is_empty: true, ..Self::new() }
    }

    /// Sets the text that counts instead of the path. Use it if a router removes a prefix before the layer
    /// sees the path, or if several paths name the same resource. For axum's `nest`, enable the feature
    /// `axum` instead.
    #[must_use]
    pub fn route(mut self, route: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.route = Some(Arc::new(route));
        self
    }

    /// Leaves the query out.
    #[must_use]
    pub const fn without_query(mut self) -> Self {
        self.without_query = true;
        self
    }

    /// Leaves the body out.
    #[must_use]
    pub const fn without_body(mut self) -> Self {
        self.without_body = true;
        self
    }

    /// Adds this header with all its values. Use it for a header that changes what the request means, such as
    /// a version of the API or `If-Match`. For `Host`, the authority of the URI counts if the URI has an
    /// authority, as in HTTP/2.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName) -> Self {
        self.headers.push(name);
        self
    }

    /// Leaves this member of a JSON body out. `pointer` is a JSON pointer (RFC 6901), such as
    /// `/client/sent_at`; it may lead through arrays (`/items/0/seen`) and must end at a member. With this
    /// option, a JSON body may have numbers that are not integers, and two numbers are equal if they are the
    /// same double.
    #[must_use]
    pub fn without_member(mut self, pointer: impl Into<String>) -> Self {
        self.left_out.push(pointer.into());
        self
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        let fault = "a member that is left out of the fingerprint is a JSON pointer such as \"/sent_at\"";
        self.left_out.iter().any(|member| !member.starts_with('/')).then_some(fault)
    }

    pub(super) fn of(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        let mut hash = Sha256::new();
        hash.update(KIND);
        if self.is_empty {
            return Fingerprint::from_bytes(hash.finalize().into());
        }
        let mut add = |label: u8, part: &[u8]| {
            hash.update([label]);
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(b'm', parts.method.as_str().as_bytes());
        match &self.route {
            Some(route) => add(b'r', route(parts).as_bytes()),
            None => add(b'p', sent_uri(parts).path().as_bytes()),
        }
        if let Some(query) = sent_uri(parts).query().filter(|_| !self.without_query) {
            add(b'q', query.as_bytes());
        }
        let boundary = multipart::boundary(content_type(parts));
        for value in parts.headers.get_all(CONTENT_TYPE) {
            // A client makes a new boundary for each try, so the boundary does not count.
            match boundary {
                Some(boundary) => add(b't', without(value.as_bytes(), boundary).as_slice()),
                None => add(b't', value.as_bytes()),
            }
        }
        for name in &self.headers {
            match sent_uri(parts).authority() {
                Some(authority) if name == HOST => {
                    add(b'n', name.as_str().as_bytes());
                    add(b'v', host(authority).as_bytes());
                }
                _ => parts.headers.get_all(name).iter().for_each(|value| {
                    add(b'n', name.as_str().as_bytes());
                    add(b'v', value.as_bytes());
                }),
            }
        }
        match boundary {
            _ if self.without_body => {}
            Some(boundary) => {
                multipart::pieces(body, boundary).into_iter().for_each(|piece| add(b'u', piece));
            }
            None => match is_json(parts).then(|| json::canonical(body, &self.left_out)).flatten() {
                Some(canonical) => add(b'j', &canonical),
                None => add(b'b', body),
            },
        }
        Fingerprint::from_bytes(hash.finalize().into())
    }
}

impl fmt::Debug for RequestFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFingerprint")
            .field("is_empty", &self.is_empty)
            .field("headers", &self.headers)
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}

/// The URI as the client sent it.
#[cfg(feature = "axum")]
fn sent_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

/// The URI of the request. Without the feature `axum`, the layer does not see a prefix that a router has
/// removed.
#[cfg(not(feature = "axum"))]
const fn sent_uri(parts: &Parts) -> &Uri {
    &parts.uri
}

/// The host and port of an authority, in the form of a `Host` header.
fn host(authority: &Authority) -> String {
    let text = authority.as_str();
    text.rsplit_once('@').map_or(text, |(_, host)| host).to_ascii_lowercase()
}

fn content_type(parts: &Parts) -> &str {
    parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The content type without its boundary.
fn without(value: &[u8], boundary: &str) -> Vec<u8> {
    String::from_utf8_lossy(value).replacen(boundary, "", 1).into_bytes()
}

fn is_json(parts: &Parts) -> bool {
    let essence = content_type(parts).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, uri: &str, content_type: Option<&str>) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(value) = content_type {
            request = request.header(CONTENT_TYPE, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn of(method: &str, uri: &str, content_type: Option<&str>, body: &str) -> Fingerprint {
        RequestFingerprint::new().of(&parts(method, uri, content_type), body.as_bytes())
    }

    #[test]
    fn no_two_requests_differ_only_by_where_a_boundary_lies() {
        let mut fingerprints = std::collections::HashSet::new();
        for (method, uri, content_type, body) in [
            ("POST", "/ab?c", Some("d"), "e"),
            ("POST", "/a?bc", Some("d"), "e"),
            ("POST", "/ab?cd", None, "e"),
            ("POST", "/ab?c", Some("de"), ""),
            ("POST", "/ab?c", None, "de"),
            ("POST", "/ab", Some("d"), "e"),
            ("POST", "/ab?", Some("d"), "e"),
            ("POST", "/abc", Some("d"), "e"),
            ("PATCH", "/ab?c", Some("d"), "e"),
            ("POST", "/ab?c", Some("d"), "e "),
            ("POST", "/abqc", Some("d"), "e"),
            ("POST", "/ab?ctd", None, "e"),
            ("POST", "/ab?c", Some("dbe"), ""),
            ("POST", "/ab?c", None, "e"),
            ("POST", "/abqctdbe", None, ""),
        ] {
            assert!(
                fingerprints.insert(of(method, uri, content_type, body)),
                "{method} {uri} {content_type:?} {body}"
            );
        }
    }

    #[test]
    fn a_json_body_counts_by_its_meaning_and_any_other_by_its_bytes() {
        let (one, other) = (r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#);
        for json in ["application/json", "Application/vnd.x+JSON ; charset=utf-8"] {
            assert_eq!(of("POST", "/", Some(json), one), of("POST", "/", Some(json), other));
        }
        for kind in [None, Some("text/plain")] {
            assert_ne!(of("POST", "/", kind, one), of("POST", "/", kind, other));
        }
        let large = |last| format!("[900719925474099{last}]");
        let json = Some("application/json");
        assert_ne!(of("POST", "/", json, &large(2)), of("POST", "/", json, &large(3)));
    }

    #[test]
    fn a_multipart_body_counts_by_its_parts_whatever_its_boundary_is() {
        let form = |boundary: &str, amount: u8| {
            let kind = format!("multipart/form-data; boundary={boundary}");
            let body = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{amount}\r\n--{boundary}--\r\n"
            );
            of("POST", "/", Some(&kind), &body)
        };
        assert_eq!(form("one", 1), form("other", 1));
        assert_ne!(form("one", 1), form("one", 2));
        let split = |body: &str| of("POST", "/", Some("multipart/mixed; boundary=x"), body);
        assert_ne!(split("--x\r\na\r\n--x\r\nb"), split("--x\r\na\r\nb"));
        assert_ne!(split("--x\na\r\n--x"), split("--x\na\n--x"));
    }

    #[test]
    fn a_member_that_is_left_out_may_change_and_every_other_may_not() {
        let left_out = RequestFingerprint::new()
            .without_member("/sent_at")
            .without_member("/client/a~1b~0c")
            .without_member("/items/0/seen");
        let of = |body: &str| left_out.of(&parts("POST", "/", Some("application/json")), body.as_bytes());
        let body = |at, ab, seen, amount| {
            format!(
                r#"{{"sent_at":{at},"client":{{"a/b~c":{ab}}},"items":[{{"seen":{seen}}}],"amount":{amount}.5}}"#
            )
        };
        assert_eq!(of(&body(1, 1, 1, 1)), of(&body(2, 3, 4, 1)));
        assert_eq!(of(&body(1, 1, 1, 1)), of(r#"{"client":{},"items":[{}],"amount":1.5}"#));
        assert_ne!(of(&body(1, 1, 1, 1)), of(&body(1, 1, 1, 2)));
        assert!(RequestFingerprint::new().without_member("sent_at").fault().is_some());
        assert!(left_out.fault().is_none());
    }

    #[test]
    fn parts_that_are_left_out_do_not_count() {
        let (one, other) = (parts("POST", "/a?b", Some("c")), parts("POST", "/x?y", Some("c")));
        let left_out = RequestFingerprint::new().route(|_| "/{id}".to_owned()).without_query().without_body();
        assert_eq!(left_out.of(&one, b"d"), left_out.of(&other, b"w"));
        assert_ne!(RequestFingerprint::new().of(&one, b""), RequestFingerprint::new().of(&other, b""));
        let (none, other) = (RequestFingerprint::none(), parts("PATCH", "/", Some("d")));
        assert_eq!(none.of(&one, b"d"), none.of(&other, b"w"));
    }
}
