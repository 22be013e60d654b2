//! A recorded response: its byte format, and which headers it keeps.
//!
//! Owns the format and the choice of headers. Knows nothing about streamed bodies, or about which responses
//! are kept.

use std::collections::HashSet;
use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{AGE, CONNECTION, DATE, HeaderName, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::body::Body;

/// The version of the byte format. It is the first byte and so identifies the format of the result: see
/// `idem_core::protocol::ResultFormat`. Another byte format needs another number.
const VERSION: u8 = 1;

/// The header that marks a replay.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Headers that are never kept, because they apply to one connection (RFC 9110, section 7.6.1), to one point
/// in time, to one request or to one client only. [`is_never_kept`] adds the headers that have no constant in
/// the crate `http`.
///
/// Challenges (`WWW-Authenticate`) are kept, because a 401 needs one (RFC 9110, section 15.5.2).
const NEVER: [HeaderName; 7] = [AGE, CONNECTION, TE, TRANSFER_ENCODING, UPGRADE, DATE, SET_COOKIE];

/// The prefixes of some headers' names. These headers say how many requests the client may still send at this
/// moment.
const RATE_LIMITS: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];

fn is_never_kept(name: &HeaderName) -> bool {
    NEVER.contains(name)
        || matches!(
            name.as_str(),
            "keep-alive"
                | "proxy-connection"
                | "set-cookie2"
                | "authentication-info"
                | "proxy-authentication-info"
                | "server-timing"
                // Ids of requests are not kept, because otherwise a support ticket about a replay would name
                // the first request instead of the repeated one.
                | "request-id"
                | "x-request-id"
                | "x-correlation-id"
                | "x-amzn-requestid"
                | "x-amzn-trace-id"
                | "traceparent"
                | "traceresponse"
        )
        || RATE_LIMITS.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// The headers that `Connection` names as headers for this connection.
fn named_by_connection(headers: &HeaderMap) -> HashSet<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

/// The bytes of a response, without the `denied` headers and the headers that are never kept.
pub(super) fn encode(
    denied: &HashSet<HeaderName>,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    trailers: Option<&HeaderMap>,
) -> Bytes {
    let of_connection = named_by_connection(headers);
    let is_kept =
        |name: &HeaderName| !is_never_kept(name) && !of_connection.contains(name) && !denied.contains(name);
    let mut out = BytesMut::with_capacity(body.len() + 64 * headers.len() + 24);
    out.put_u8(VERSION);
    put(&mut out, status.as_str().as_bytes());
    for fields in [Some(headers), trailers] {
        for (name, value) in fields.into_iter().flatten().filter(|(name, _)| is_kept(name)) {
            put(&mut out, name.as_str().as_bytes());
            put(&mut out, value.as_bytes());
        }
        // An empty name ends the headers, because no header's name is empty.
        put(&mut out, b"");
    }
    // The length of the body shows whether a record was truncated.
    put(&mut out, body);
    out.freeze()
}

/// The response in these bytes, marked as a replay; `None` if the bytes are not a recorded response.
pub(super) fn replay(bytes: &[u8]) -> Option<Response<Body>> {
    let StoredResponse { status, mut headers, body, trailers } = StoredResponse::from_bytes(bytes)?;
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
    let mut response = Response::new(Body::whole(body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Some(response)
}

/// A response as the store keeps it. Use it in tools that show a response, or that record a response for an
/// operator.
///
/// ```
/// use http::StatusCode;
/// use idem::http::StoredResponse;
///
/// let mut response = StoredResponse::new(StatusCode::CREATED, "paid".into());
/// response.headers.insert("location", "/payments/7".parse()?);
/// let bytes = response.to_bytes();
/// assert_eq!(StoredResponse::from_bytes(&bytes).unwrap().status, 201);
/// assert!(StoredResponse::from_bytes(b"{}").is_none());
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers.
    pub trailers: HeaderMap,
}

impl StoredResponse {
    /// A response without headers.
    #[must_use]
    pub fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, headers: HeaderMap::new(), body, trailers: HeaderMap::new() }
    }

    /// The bytes that the layer would record, without the headers that it never keeps.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        encode(&HashSet::new(), self.status, &self.headers, &self.body, Some(&self.trailers))
    }

    /// The response in the bytes that a layer recorded; `None` if the bytes are not a recorded response.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes.strip_prefix(&[VERSION])?;
        let status = StatusCode::from_bytes(take(input)?).ok()?;
        let (headers, trailers) = (take_fields(input)?, take_fields(input)?);
        let body = Bytes::copy_from_slice(take(input)?);
        input.is_empty().then_some(Self { status, headers, body, trailers })
    }
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Writes the length of a part, and the part. In practice, a part is shorter than 4 GiB, because the layer
/// limits bodies, and servers limit headers.
fn put(out: &mut BytesMut, part: &[u8]) {
    out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
    out.put_slice(part);
}

fn take<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *input = rest;
    Some(part)
}

fn take_fields(input: &mut &[u8]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    loop {
        match take(input)? {
            [] => return Some(fields),
            name => {
                let (name, value) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(take(input)?));
                fields.try_append(name.ok()?, value.ok()?).ok()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&str, &[u8])| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_is_for_one_connection_one_moment_or_one_client_is_not_kept() {
        let headers = fields(&[
            ("connection", b"close, X-Hop"),
            ("connection", b" x-other "),
            ("x-hop", b"1"),
            ("x-other", b"1"),
            ("keep-alive", b"1"),
            ("proxy-connection", b"1"),
            ("te", b"trailers"),
            ("transfer-encoding", b"chunked"),
            ("upgrade", b"h2c"),
            ("date", b"now"),
            ("set-cookie", b"a=b"),
            ("www-authenticate", b"Basic"),
            ("proxy-authenticate", b"Basic"),
            ("authentication-info", b"nextnonce=1"),
            ("age", b"1"),
            ("ratelimit-policy", b"1"),
            ("x-ratelimit-reset", b"1"),
            ("x-rate-limit-limit", b"1"),
            ("x-request-id", b"1"),
            ("server-timing", b"1"),
            ("traceparent", b"1"),
            ("retry-after", b"1"),
            ("x-rating", b"1"),
        ]);
        let kept = fields(&[
            ("www-authenticate", b"Basic"),
            ("proxy-authenticate", b"Basic"),
            ("retry-after", b"1"),
            ("x-rating", b"1"),
        ]);
        let bytes = encode(&HashSet::new(), StatusCode::CREATED, &headers, b"", None);
        assert_eq!(StoredResponse::from_bytes(&bytes).unwrap().headers, kept);
    }

    #[test]
    fn bytes_of_another_form_are_no_response() {
        let bytes = encode(&HashSet::new(), StatusCode::OK, &fields(&[("a", b"1")]), b"body", None);
        for length in 0..bytes.len() {
            assert!(StoredResponse::from_bytes(&bytes[..length]).is_none(), "{length}");
        }
        assert!(StoredResponse::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
        let mut other = bytes.to_vec();
        other[0] = 2;
        assert!(StoredResponse::from_bytes(&other).is_none());
        assert!(StoredResponse::from_bytes(br#"{"json":true}"#).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = StoredResponse::from_bytes(&bytes);
            let mut versioned = vec![VERSION];
            versioned.extend(bytes);
            let _ = StoredResponse::from_bytes(&versioned);
        }
    }
}
