//! A whole response, and how it differs from another one.

use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;

use super::repetition::Answer;

/// The longest part of a body that a message shows.
const SHOWN: usize = 200;

/// The codes of gRPC that a later call must get, too: those that `GrpcIdempotencyLayer` keeps.
const FINAL_CODES: [&str; 6] = ["0", "3", "5", "6", "9", "11"];

/// `ABORTED`, for a key in flight.
const ABORTED: &str = "10";

/// A whole response.
pub(super) struct Whole {
    pub(super) head: Parts,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Whole {
    /// The code of a gRPC call.
    fn code(&self) -> Option<&str> {
        self.metadata("grpc-status")
    }

    fn metadata(&self, name: &str) -> Option<&str> {
        let trailer = self.trailers.as_ref().and_then(|trailers| trailers.get(name));
        trailer.or_else(|| self.head.headers.get(name)).and_then(|value| value.to_str().ok())
    }

    /// The status, for a message.
    fn status(&self) -> String {
        self.code().map_or_else(|| self.head.status.to_string(), str::to_owned)
    }
}

impl Answer for Whole {
    /// Whether a long operation is in flight, too.
    fn is_busy(&self) -> bool {
        let in_flight = match (self.code(), self.head.status) {
            (Some(code), _) => code == ABORTED,
            (None, StatusCode::ACCEPTED) => self.body.as_ref() == br#"{"state":"in_flight"}"#,
            (None, status) => status == StatusCode::CONFLICT,
        };
        in_flight && self.head.headers.contains_key(RETRY_AFTER)
    }

    fn is_final(&self) -> bool {
        let status = self.head.status;
        let asks_again = matches!(status.as_u16(), 401 | 403 | 407 | 408 | 425 | 429);
        self.code().map_or(!(asks_again || status.is_server_error()), |code| FINAL_CODES.contains(&code))
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let (first, second) = (&self.head, &other.head);
        if first.status != second.status || self.code() != other.code() {
            let then = match other.metadata("grpc-message") {
                Some(message) => format!("message `{message}`"),
                None => format!("body {}", shown(&other.body)),
            };
            let word = if self.code().is_some() { "code" } else { "status" };
            return Some(format!("{word} {} and then {}, with the {then}", self.status(), other.status()));
        }
        if let Some(name) =
            [CONTENT_TYPE, LOCATION].iter().find(|name| first.headers.get(*name) != second.headers.get(*name))
        {
            let value = |head: &Parts| {
                head.headers
                    .get(name)
                    .map_or_else(|| "none".into(), |value: &HeaderValue| format!("{value:?}"))
            };
            return Some(format!("header `{name}` {} and then {}", value(first), value(second)));
        }
        let differs = self.body != other.body;
        differs.then(|| format!("body {} and then {}", shown(&self.body), shown(&other.body)))
    }
}

fn shown(body: &Bytes) -> String {
    let ellipsis = if body.len() > SHOWN { ".." } else { "" };
    format!("`{}{ellipsis}`", String::from_utf8_lossy(&body[..body.len().min(SHOWN)]))
}

/// The bytes of a body, and its trailers.
pub(super) async fn whole<B: http_body::Body<Error: fmt::Debug>>(body: B) -> (Bytes, Option<HeaderMap>) {
    match body.collect().await {
        Ok(collected) => {
            let trailers = collected.trailers().cloned();
            (collected.to_bytes(), trailers)
        }
        Err(error) => panic!("a body cannot be read: {error:?}"),
    }
}
