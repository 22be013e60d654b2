//! The body type of requests and responses, and reading a body up to a limit.
//!
//! Owns the rule that no byte and no trailer is lost. Knows nothing about keys or about what is recorded.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, LengthLimitError, StreamBody};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How many bytes of a refused request's body are read and discarded at most.
const MOST_DISCARDED: usize = 64 * 1024 * 1024;

/// How long the body of a refused request is read at most.
const LONGEST_DISCARDING: Duration = Duration::from_secs(10);

/// The error type of a [`Body`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Piece = Result<Frame<Bytes>, BoxError>;

/// The body of a request or response that went through the layer. It is whole in memory, or a stream.
///
/// For a service that takes only its own body type, map the request, for example with
/// `ServiceBuilder::new().layer(layer).map_request(|request: Request<idem::http::Body>| request.map(axum::body::Body::new))`.
/// axum's `Router` takes any body type and needs no mapping.
pub struct Body(UnsyncBoxBody<Bytes, BoxError>);

impl Body {
    /// A body that is streamed.
    #[must_use]
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(body.map_err(Into::<BoxError>::into).boxed_unsync())
    }

    /// A body that is whole in memory.
    #[must_use]
    pub fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        match trailers {
            None => Self::new(Full::new(data)),
            // If a server knows the length of a body, it sends the length in a header, and sends no trailers.
            // So the length is hidden.
            Some(_) => Self::of_unsaid_length(data, trailers),
        }
    }

    /// A body in memory that hides its length from the server. An empty body gets a frame without data,
    /// because without any frame the server would see that the body is empty.
    pub(super) fn of_unsaid_length(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let frames = [Frame::data(data)].into_iter().chain(trailers.map(Frame::trailers));
        Self::new(StreamBody::new(stream::iter(frames.map(Ok::<_, BoxError>))))
    }

    /// Puts a partly read body together again: the data that was read, the frame or error that came next, and
    /// the rest.
    fn partly_read(data: BytesMut, next: Piece, rest: Self) -> Self {
        let data = (!data.is_empty()).then(|| Ok(Frame::data(data.freeze())));
        let read = stream::iter(data.into_iter().chain([next]));
        Self::new(StreamBody::new(read.chain(BodyStream::new(rest))))
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        Self::whole(data, None)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

pub(super) enum Gathered {
    /// The body ended within the limit.
    Whole(Bytes, Option<HeaderMap>),
    /// The body is larger than the limit. This value is still the whole body: the data that was read comes
    /// first.
    TooLarge(Body),
    /// The body ended with an error. `read` is what was read, followed by that error. `limited` says whether
    /// the body exceeded the limit of another layer.
    Broken { read: Body, limited: bool },
}

/// Reads `body` to its end, or until it exceeds `limit` bytes. A body whose declared length is larger than
/// `limit` is not read.
pub(super) async fn gather(mut body: Body, limit: usize) -> Gathered {
    if body.size_hint().lower() > limit as u64 {
        return Gathered::TooLarge(body);
    }
    // The data is copied, because each frame keeps the whole read buffer of the connection alive.
    let mut data = BytesMut::new();
    let mut trailers: Option<HeaderMap> = None;
    while let Some(read) = body.frame().await {
        let frame = match read {
            Ok(frame) => frame,
            Err(error) => {
                let limited = is_limit(&*error);
                let read = Body::partly_read(data, Err(error), Body::from(Bytes::new()));
                return Gathered::Broken { read, limited };
            }
        };
        match frame.into_data() {
            Ok(more) if data.len() + more.len() > limit => {
                return Gathered::TooLarge(Body::partly_read(data, Ok(Frame::data(more)), body));
            }
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
    Gathered::Whole(data.freeze(), trailers)
}

fn is_limit(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_limit)
}

/// Reads and discards the rest of a refused request's body in the background, up to a limit of bytes and a
/// limit of time.
///
/// Some clients read the response only after they have sent everything. Without this function, their
/// connections would be reset.
pub(super) fn discard(mut body: Body) {
    let (false, Ok(runtime)) = (body.is_end_stream(), Handle::try_current()) else { return };
    let discarding = async move {
        let mut bytes_left = MOST_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            bytes_left = bytes_left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if bytes_left == 0 {
                break;
            }
        }
    };
    runtime.spawn(timeout(LONGEST_DISCARDING, discarding));
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn pieces(pieces: Vec<Piece>) -> Body {
        Body::new(StreamBody::new(stream::iter(pieces)))
    }

    fn data(text: &'static str) -> Piece {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    fn checksum() -> HeaderMap {
        [(HeaderName::from_static("checksum"), HeaderValue::from_static("1"))].into_iter().collect()
    }

    #[test]
    fn outside_of_a_runtime_a_refused_body_is_dropped() {
        discard(pieces(vec![data("ab")]));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_goes_on_with_every_byte_and_trailer() {
        let body = pieces(vec![data("ab"), data("cd"), data("ef"), Ok(Frame::trailers(checksum()))]);
        let Gathered::TooLarge(body) = gather(body, 3).await else { panic!("not too large") };
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&checksum()));
        assert_eq!(collected.to_bytes(), "abcdef");
    }
}
