//! The answer to a request, and how it differs from another one.

use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;

/// The longest part of a body that a message shows.
const SHOWN: usize = 200;

/// A whole response.
pub(super) struct Answer {
    pub(super) head: Parts,
    pub(super) body: Bytes,
}

impl Answer {
    /// Whether another request with the key is in flight, or its long operation.
    pub(super) fn is_busy(&self) -> bool {
        let in_flight = match self.head.status {
            StatusCode::CONFLICT => true,
            StatusCode::ACCEPTED => self.body.as_ref() == br#"{"state":"in_flight"}"#,
            _ => false,
        };
        in_flight && self.head.headers.contains_key(RETRY_AFTER)
    }

    /// Whether a later request must get the same.
    pub(super) fn is_final(&self) -> bool {
        let status = self.head.status;
        let asks_again = matches!(status.as_u16(), 401 | 403 | 407 | 408 | 425 | 429);
        !(asks_again || status.is_server_error() || self.is_busy())
    }

    /// How the other one differs from this.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let (first, second) = (&self.head, &other.head);
        if first.status != second.status {
            let then = shown(&other.body);
            return Some(format!("status {} and then {}, with the body {then}", first.status, second.status));
        }
        if let Some(name) =
            [CONTENT_TYPE, LOCATION].iter().find(|name| first.headers.get(*name) != second.headers.get(*name))
        {
            let value = |head: &Parts| {
                head.headers.get(name).map_or_else(|| "none".into(), |value| format!("{value:?}"))
            };
            return Some(format!("header `{name}` {} and then {}", value(first), value(second)));
        }
        let differs = self.body != other.body;
        differs.then(|| format!("body {} and then {}", shown(&self.body), shown(&other.body)))
    }

    pub(super) fn response<R: From<Bytes>>(self) -> Response<R> {
        Response::from_parts(self.head, R::from(self.body))
    }
}

fn shown(body: &Bytes) -> String {
    let ellipsis = if body.len() > SHOWN { ".." } else { "" };
    format!("`{}{ellipsis}`", String::from_utf8_lossy(&body[..body.len().min(SHOWN)]))
}

/// The bytes of a body.
pub(super) async fn whole<B: http_body::Body<Error: fmt::Debug>>(body: B) -> Bytes {
    match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => panic!("a body cannot be read: {error:?}"),
    }
}
